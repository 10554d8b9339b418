{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* Names, labels, and the decisions that depend on the cluster. */ -}}

{{- define "dra-driver.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dra-driver.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "dra-driver.fullname" .) -}}
{{- end -}}

{{- define "dra-driver.selector" -}}
app.kubernetes.io/name: dra-driver
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "dra-driver.labels" -}}
{{ include "dra-driver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "dra-driver.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* A first part with a dot or a colon is a registry. */ -}}
{{- define "dra-driver.pullPolicy" -}}
{{- if ne .Values.image.pullPolicy "auto" -}}
{{- .Values.image.pullPolicy -}}
{{- else if regexMatch "^(localhost|[^/]*[.:][^/]*)/" .Values.image.repository -}}
IfNotPresent
{{- else -}}
Never
{{- end -}}
{{- end -}}

{{- /* The backend of the older values backend and simulated, which this version still takes; "" if they name none. */ -}}
{{- define "dra-driver.olderBackend" -}}
{{- if ne .Values.backend.name "auto" -}}
{{- .Values.backend.name -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the driver writes status.devices of claims: about its devices, or the binding conditions of simulated ones. */ -}}
{{- define "dra-driver.writesStatus" -}}
{{- $simulated := get .Values.backends "simulated" | default dict -}}
{{- $example := $simulated.example | default dict -}}
{{- $binds := and $example.bindingConditions (ne (toString $example.bindingController) "false") -}}
{{- if and (include "dra-driver.resourceApiVersion" .) (or $binds (eq .Values.deviceStatus "write")) -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" if the driver patches its Node: labels, or the startup taint. */ -}}
{{- define "dra-driver.patchesNode" -}}
{{- if or (eq .Values.nodeLabels "patch") .Values.startupTaint -}}
true
{{- end -}}
{{- end -}}

{{- /* LABEL=FACT,… as the driver reads it. */ -}}
{{- define "dra-driver.labelAliases" -}}
{{- $pairs := list -}}
{{- range $label, $fact := .Values.nodeLabelAliases -}}
{{- $pairs = append $pairs (printf "%s=%s" $label $fact) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{- define "dra-driver.config" -}}
apiVersion: config.dra-driver.dev/v1alpha1
kind: DriverConfig
backends:
  {{- toYaml (include "dra-driver.backends" . | fromYaml) | nindent 2 }}
{{- with include "dra-driver.pluginSection" . | fromYaml }}
devicePlugin:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* With the hardware container, backend nvidia asks its socket, beside auto too. It reads the configuration of NVIDIA's device plugin. */ -}}
{{- define "dra-driver.backends" -}}
{{- $backends := deepCopy (.Values.backends | default (dict "auto" dict)) -}}
{{- if include "dra-driver.hardware" . -}}
{{- $options := get $backends "nvidia" | default dict -}}
{{- $backends = set $backends "nvidia" (set $options "socket" (include "dra-driver.hardwareSocket" .)) -}}
{{- $brought := .Values.devicePlugin.nvidiaConfigMap -}}
{{- if and $brought.name (include "dra-driver.servesPlugin" .) -}}
{{- $chosen := dict "config" (include "dra-driver.nvidiaConfigDir" .) "default" $brought.default "fallbackStrategies" $brought.fallbackStrategies -}}
{{- $options = set $options "devicePlugin" $chosen -}}
{{- end -}}
{{- end -}}
{{- toYaml $backends -}}
{{- end -}}

{{- /* The newest version of resource.k8s.io that the cluster serves; "" if none. A version is believed only of a Kubernetes that can have it:
       without a cluster, `helm template` claims to serve everything that helm itself knows. */ -}}
{{- define "dra-driver.resourceApiVersion" -}}
{{- $found := "" -}}
{{- if ne .Values.deviceClasses.apiVersion "auto" -}}
{{- $found = .Values.deviceClasses.apiVersion -}}
{{- else -}}
{{- $since := dict "v1" ">=1.34.0-0" "v1beta2" ">=1.33.0-0" "v1beta1" ">=1.32.0-0" -}}
{{- range $version := list "v1" "v1beta2" "v1beta1" -}}
{{- $served := $.Capabilities.APIVersions.Has (printf "resource.k8s.io/%s" $version) -}}
{{- if and (not $found) $served (semverCompare (get $since $version) $.Capabilities.KubeVersion.Version) -}}
{{- $found = $version -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $found -}}
{{- printf "resource.k8s.io/%s" $found -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the cluster has ValidatingAdmissionPolicies: always since 1.30, and none before. */ -}}
{{- define "dra-driver.servesPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" if the new pod of a node starts beside the old one. */ -}}
{{- define "dra-driver.surge" -}}
{{- $new := ">=1.33.0-0" -}}
{{- if eq .Values.updateStrategy.surge "always" -}}
true
{{- else if and (eq .Values.updateStrategy.surge "auto") (semverCompare $new .Capabilities.KubeVersion.Version) -}}
{{- $old := list -}}
{{- range $node := dig "items" list (lookup "v1" "Node" "" "") -}}
{{- $kubelet := dig "status" "nodeInfo" "kubeletVersion" "" $node -}}
{{- /* What calls itself otherwise is no kubelet that runs this DaemonSet. */ -}}
{{- if and (regexMatch "^v[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$" $kubelet) (not (semverCompare $new $kubelet)) -}}
{{- $old = append $old $node.metadata.name -}}
{{- end -}}
{{- end -}}
{{- if not $old -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The claims with devices of this driver that some pod uses, the first ten of them. `helm template` sees none. */ -}}
{{- define "dra-driver.claimsInUse" -}}
{{- $used := list -}}
{{- $version := include "dra-driver.resourceApiVersion" . -}}
{{- $claims := list -}}
{{- if $version -}}
{{- $claims = dig "items" list (lookup $version "ResourceClaim" "" "") -}}
{{- end -}}
{{- range $claim := $claims -}}
{{- if dig "status" "reservedFor" list $claim -}}
{{- range $result := dig "status" "allocation" "devices" "results" list $claim -}}
{{- if eq $result.driver $.Values.driverName -}}
{{- $used = append $used (printf "%s/%s" $claim.metadata.namespace $claim.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names := $used | uniq | sortAlpha -}}
{{- if gt (len $names) 10 -}}
{{- printf "%s and %d more" (slice $names 0 10 | join ", ") (sub (len $names) 10) -}}
{{- else -}}
{{- $names | join ", " -}}
{{- end -}}
{{- end -}}

{{- /* Everything that values.schema.json cannot say. Rendered by the DaemonSet. */ -}}
{{- define "dra-driver.check" -}}
{{- if and (eq .Release.Namespace "default") (not .Values.allowDefaultNamespace) -}}
{{- fail "Namespace \"default\" is refused, for the driver's namespace must be allowed privileged pods. Add --namespace dra-driver --create-namespace, or allow it with --set allowDefaultNamespace=true." -}}
{{- end -}}
{{- include "dra-driver.checkNames" . -}}
{{- include "dra-driver.checkPlugin" . -}}
{{- if and .Values.cleanup.enabled (not .Values.cleanup.force) -}}
{{- $used := include "dra-driver.claimsInUse" . -}}
{{- if $used -}}
{{- fail (printf "Pods still use devices of %s, by the claims %s. Only the running driver can release them: delete these pods first, then try again. cleanup.force=true goes on all the same; those pods lose their devices and cannot end, and another pod can get a device that one of them still uses." .Values.driverName $used) -}}
{{- end -}}
{{- end -}}
{{- range $key, $_ := .Values.backend.options -}}
{{- if contains "=" $key -}}
{{- fail (printf "backend.options has the key %q; a key has no =." $key) -}}
{{- end -}}
{{- end -}}
{{- $older := include "dra-driver.olderBackend" . -}}
{{- if and .Values.backend.options (not $older) -}}
{{- fail "backend.options has no backend: set backends.NAME instead, with these options." -}}
{{- end -}}
{{- if and (ne $older "simulated") (not (has .Values.simulated.profile (list "" "h100x8"))) -}}
{{- fail (printf "simulated.profile is %s, and the older value backend.name is not simulated: set backends.simulated.profile instead." .Values.simulated.profile) -}}
{{- end -}}
{{- include "dra-driver.checkHardware" . -}}
{{- if and .Values.admissionPolicy.enabled (not (include "dra-driver.servesPolicies" .)) (or (include "dra-driver.patchesNode" .) (eq .Values.nodeCondition "write")) -}}
{{- fail (printf "nodeLabels=patch, nodeCondition and startupTaint come with rights for every Node, which a ValidatingAdmissionPolicy narrows, and this is Kubernetes %s: there are such policies from 1.30 on. Leave them, or accept the rights with admissionPolicy.enabled=false." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.appArmorProfile (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "appArmorProfile is a field of Kubernetes 1.30 and later, and this is %s. Leave it, and set podAnnotations of AppArmor." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range $label, $_ := .Values.nodeLabelAliases -}}
{{- if and (ne $.Values.nodeLabels "patch") (not (contains "/" $label)) -}}
{{- fail (printf "nodeLabelAliases has %s, a label without a domain. Node Feature Discovery would give it one: set nodeLabels=patch, or use a name like example.com/%s." $label $label) -}}
{{- end -}}
{{- end -}}
{{- include "dra-driver.checkLabels" . -}}
{{- range $key, $_ := .Values.podLabels -}}
{{- if or (eq $key "app.kubernetes.io/component") (hasKey (include "dra-driver.labels" $ | fromYaml) $key) -}}
{{- fail (printf "podLabels sets %s, which the chart sets itself." $key) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "kubectl.kubernetes.io/default-container" "dra-driver.dev/config" -}}
{{- if hasKey ($.Values.podAnnotations | default dict) $key -}}
{{- fail (printf "podAnnotations sets %s, which the chart sets itself." $key) -}}
{{- end -}}
{{- end -}}
{{- $ofHardware := list "NVIDIA_VISIBLE_DEVICES" -}}
{{- range $variable := .Values.hardware.extraEnv -}}
{{- if has $variable.name $ofHardware -}}
{{- fail (printf "hardware.extraEnv sets %s, which the chart or an earlier entry sets." $variable.name) -}}
{{- end -}}
{{- $ofHardware = append $ofHardware $variable.name -}}
{{- end -}}
{{- $names := list "POD_UID" -}}
{{- range $variable := fromYamlArray (printf "%s\n%s" (include "dra-driver.pluginEnv" .) (include "dra-driver.env" .)) -}}
{{- if has $variable.name $names -}}
{{- fail (printf "extraEnv sets %s, which the chart sets from a value of its own (values.yaml has it); set that one." $variable.name) -}}
{{- end -}}
{{- $names = append $names $variable.name -}}
{{- end -}}
{{- if and (eq (toString .Values.onlyGpuNodes) "true") .Values.affinity -}}
{{- fail "Set either onlyGpuNodes or affinity: the first is an affinity of the chart's own." -}}
{{- end -}}
{{- /* A socket's path has at most 107 bytes. The longest is KUBELETDIR/plugins_registry/DRIVERNAME[-DIGEST]-reg.sock. */ -}}
{{- $longest := ternary 71 80 (eq (include "dra-driver.surge" .) "true") -}}
{{- if gt (add (len .Values.kubeletDir) (len .Values.driverName)) $longest -}}
{{- fail (printf "kubeletDir %q and driverName %q have %d characters together, and at most %d leave room for the sockets' names; shorten driverName%s." .Values.kubeletDir .Values.driverName (add (len .Values.kubeletDir) (len .Values.driverName)) $longest (ternary ", or set updateStrategy.surge=never, which has 9 more" "" (eq $longest 71))) -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "metrics.serviceMonitor.enabled needs the Prometheus Operator, and this cluster does not serve monitoring.coreos.com/v1. Install it first, or leave the value off; `helm template` needs --api-versions monitoring.coreos.com/v1." -}}
{{- end -}}
{{- if and (include "dra-driver.constraints" .) (not (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
{{- fail "openshift.securityContextConstraints is for OpenShift, as platform=openshift is, and this cluster does not serve security.openshift.io/v1. Leave both; `helm template` needs --api-versions security.openshift.io/v1." -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled." -}}
{{- end -}}
{{- include "dra-driver.checkResources" . -}}
{{- include "dra-driver.checkVolumes" . -}}
{{- end -}}
