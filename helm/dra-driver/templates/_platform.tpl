{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What the platform decides (platforms.yaml), unless a value of the user's does. */ -}}

{{- define "dra-driver.platform" -}}
{{- toYaml (get (.Files.Get "platforms.yaml" | fromYaml) .Values.platform) -}}
{{- end -}}

{{- define "dra-driver.driverRoot" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- .Values.hardware.driverRoot | default $platform.driverRoot | default "" -}}
{{- end -}}

{{- define "dra-driver.cdiDir" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- .Values.cdiDir | default $platform.cdiDir | default "/var/run/cdi" -}}
{{- end -}}

{{- /* "true" if the namespace needs a ResourceQuota for the priority class. kube-system has one where it is asked for. */ -}}
{{- define "dra-driver.resourceQuota" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- if or .Values.resourceQuota.enabled (and $platform.resourceQuota (ne .Release.Namespace "kube-system")) -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" if there is to be a SecurityContextConstraints object. */ -}}
{{- define "dra-driver.constraints" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- if or .Values.openshift.securityContextConstraints $platform.securityContextConstraints -}}
true
{{- end -}}
{{- end -}}

{{- define "dra-driver.seLinuxOptions" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- with .Values.seLinuxOptions | default $platform.seLinuxOptions -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "dra-driver.tolerations" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- $startup := ternary (list (dict "key" .Values.startupTaint "operator" "Exists")) list (ne .Values.startupTaint "") -}}
{{- with concat (.Values.tolerations | default list) ($platform.tolerations | default list) $startup | uniq -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the pods run on accelerator nodes only. */ -}}
{{- define "dra-driver.onlyGpuNodes" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- if eq (toString .Values.onlyGpuNodes) "true" -}}
true
{{- else if and (eq (toString .Values.onlyGpuNodes) "auto") (hasKey $platform "nodeLabels") (not .Values.affinity) -}}
true
{{- end -}}
{{- end -}}

{{- /* Any one of the labels is enough. NVIDIA's operator, and any admin, can take this driver off a node by the last label of each term. */ -}}
{{- define "dra-driver.gpuNodes" -}}
{{- $platform := include "dra-driver.platform" . | fromYaml -}}
{{- $labels := list
  (dict "key" "nvidia.com/gpu.present" "value" "true")
  (dict "key" "feature.node.kubernetes.io/pci-10de.present" "value" "true")
  (dict "key" "feature.node.kubernetes.io/pci-0300_10de.present" "value" "true")
  (dict "key" "feature.node.kubernetes.io/pci-0302_10de.present" "value" "true")
-}}
{{- range $key, $value := $platform.nodeLabels -}}
{{- $labels = append $labels (dict "key" $key "value" $value) -}}
{{- end -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range $labels }}
      - matchExpressions:
          - key: {{ .key }}
            {{- if .value }}
            operator: In
            values: [{{ .value | quote }}]
            {{- else }}
            operator: Exists
            {{- end }}
          - key: nvidia.com/gpu.deploy.dra-driver
            operator: NotIn
            values: ["false", paused-for-driver-upgrade]
      {{- end }}
      {{- range list
        "feature.node.kubernetes.io/amd-gpu"
        "feature.node.kubernetes.io/pci-1002.present"
        "feature.node.kubernetes.io/pci-0300_1002.present"
        "feature.node.kubernetes.io/pci-0380_1002.present"
        "feature.node.kubernetes.io/pci-1200_1002.present"
        "intel.feature.node.kubernetes.io/gpu"
        "feature.node.kubernetes.io/pci-0300_8086.present"
        "feature.node.kubernetes.io/pci-0380_8086.present"
        "feature.node.kubernetes.io/pci-1da3.present"
        "feature.node.kubernetes.io/pci-1200_1da3.present"
      }}
      - matchExpressions:
          - key: {{ . }}
            operator: In
            values: ["true"]
          - key: nvidia.com/gpu.deploy.dra-driver  # a node can have GPUs of two vendors, and the pod has those of NVIDIA open
            operator: NotIn
            values: [paused-for-driver-upgrade]
      {{- end }}
{{- end -}}
