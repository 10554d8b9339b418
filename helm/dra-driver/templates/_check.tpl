{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What the API server would refuse of names, labels, amounts and volumes, and values.schema.json cannot say. Rendered by dra-driver.check. */ -}}

{{- define "dra-driver.checkNames" -}}
{{- $name := include "dra-driver.fullname" . -}}
{{- if and .Values.metrics.service.enabled (not .Values.cleanup.enabled) (not (regexMatch "^[a-z][-a-z0-9]*$" $name)) -}}
{{- fail (printf "The Service would be called %s-metrics, and a Service's name begins with a letter and has only a-z, 0-9 and -. Set fullnameOverride to such a name, or metrics.service.enabled=false." $name) -}}
{{- end -}}
{{- $names := dict "fullnameOverride" $name "serviceAccount.name" (include "dra-driver.serviceAccount" .) "The release's namespace" .Release.Namespace -}}
{{- range $what, $text := $names -}}
{{- if not (kindIs "string" (get (printf "name: %s" $text | fromYaml) "name")) -}}
{{- fail (printf "%s is %s, which YAML takes for a number, a truth value or nothing. Choose a name that can only be text." $what $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* An object with a label twice is no YAML. podLabels are compared in dra-driver.check. */ -}}
{{- define "dra-driver.checkLabels" -}}
{{- $own := include "dra-driver.labels" . | fromYaml -}}
{{- $metrics := .Values.metrics -}}
{{- $board := dict $metrics.dashboards.label "" -}}
{{- range $value, $labels := dict "serviceMonitor.labels" $metrics.serviceMonitor.labels "rules.labels" $metrics.rules.labels "dashboards.label" $board -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $own $key -}}
{{- fail (printf "metrics.%s sets %s, which the chart sets itself." $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A quantity as a number. */ -}}
{{- define "dra-driver.amount" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)$" $text -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) -}}
{{- end -}}

{{- define "dra-driver.checkResources" -}}
{{- $all := dict "resources" .Values.resources "hardware.resources" .Values.hardware.resources "pendingEvents.resources" .Values.pendingEvents.resources -}}
{{- range $value, $resources := $all -}}
{{- $limits := get ($resources | default dict) "limits" | default dict -}}
{{- range $name, $request := get ($resources | default dict) "requests" | default dict -}}
{{- $asked := include "dra-driver.amount" $request | float64 -}}
{{- if hasKey $limits $name -}}
{{- $most := include "dra-driver.amount" (get $limits $name) | float64 -}}
{{- if gt $asked $most -}}
{{- fail (printf "%s.requests has %s %v, and %s.limits only %v. Raise the limit, or request less." $value $name $request $value (get $limits $name)) -}}
{{- end -}}
{{- if and (regexMatch "^hugepages-|/" $name) (ne $asked $most) -}}
{{- fail (printf "%s.requests has %s %v, and %s.limits %v. Kubernetes wants the same amount of it in both." $value $name $request $value (get $limits $name)) -}}
{{- end -}}
{{- else if regexMatch "^hugepages-|/" $name -}}
{{- fail (printf "%s.requests has %s, and %s.limits has not. Kubernetes wants the same amount of it in both." $value $name $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dra-driver.checkVolumes" -}}
{{- $part := ternary "cleanup" "driver" (eq (toString .Values.cleanup.enabled) "true") -}}
{{- $volumes := list -}}
{{- range $volume := include (printf "dra-driver.%sVolumes" $part) . | fromYamlArray -}}
{{- if has $volume.name $volumes -}}
{{- fail (printf "extraVolumes has %s, which the chart or an earlier entry has. Give the volume another name." $volume.name) -}}
{{- end -}}
{{- $volumes = append $volumes $volume.name -}}
{{- end -}}
{{- $containers := dict "extraVolumeMounts" (include (printf "dra-driver.%sMounts" $part) . | fromYamlArray) -}}
{{- if include "dra-driver.hardware" . -}}
{{- $hardware := include "dra-driver.hardwareContainer" . | fromYamlArray | first -}}
{{- $containers = set $containers "hardware.extraVolumeMounts" $hardware.volumeMounts -}}
{{- end -}}
{{- range $value, $mounts := $containers -}}
{{- $paths := list -}}
{{- range $mount := $mounts -}}
{{- if not (has $mount.name $volumes) -}}
{{- fail (printf "%s mounts %s, and the pod has no such volume; there are %s. Add it to extraVolumes." $value $mount.name ($volumes | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if has $mount.mountPath $paths -}}
{{- fail (printf "%s has %s, where the chart or an earlier entry mounts a volume. Choose another path." $value $mount.mountPath) -}}
{{- end -}}
{{- $paths = append $paths $mount.mountPath -}}
{{- end -}}
{{- end -}}
{{- end -}}
