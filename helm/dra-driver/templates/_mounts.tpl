{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The volumes of the driver's pod and of the cleanup's, and where their first containers mount them: for the pods, and for
       dra-driver.checkVolumes, which finds what a value repeats. */ -}}

{{- define "dra-driver.driverMounts" -}}
- name: token  # it reads claims and writes slices; of this container alone
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
- name: plugin  # its socket, state and locks; not the directories of other drivers
  mountPath: {{ printf "%s/plugins/%s" .Values.kubeletDir .Values.driverName }}
{{- if not (include "dra-driver.olderBackend" .) }}
- name: config  # its own configuration
  mountPath: /etc/dra-driver
  readOnly: true
{{- end }}
{{- include "dra-driver.proofMounts" . | nindent 0 }}
{{- if include "dra-driver.servesPlugin" . }}
{{- include "dra-driver.pluginMounts" . | nindent 0 }}
{{- else }}
- name: device-plugins  # the kubelet's checkpoint: which pods have devices by plugins of others
  mountPath: {{ .Values.kubeletDir }}/device-plugins
  readOnly: true
{{- end }}
{{- if include "dra-driver.hardware" . }}
- name: hardware  # the socket of the container `hardware`
  mountPath: /run/dra-hardware
  readOnly: true
{{- end }}
{{- include "dra-driver.volumeMounts" . | nindent 0 }}
{{- end -}}

{{- define "dra-driver.driverVolumes" -}}
{{- include "dra-driver.tokenVolume" . | nindent 0 }}
{{- if include "dra-driver.hardware" . }}
{{- include "dra-driver.hardwareVolumes" . | nindent 0 }}
{{- end }}
- name: plugin
  hostPath:
    path: {{ printf "%s/plugins/%s" .Values.kubeletDir .Values.driverName }}
    type: DirectoryOrCreate
{{- if not (include "dra-driver.olderBackend" .) }}
- name: config
  configMap:
    name: {{ include "dra-driver.fullname" . }}
{{- end }}
{{- if include "dra-driver.servesPlugin" . }}
{{- include "dra-driver.pluginVolumes" . | nindent 0 }}
{{- else }}
- name: device-plugins
  hostPath:
    path: {{ .Values.kubeletDir }}/device-plugins
    type: Directory  # made by the kubelet
{{- end }}
{{- include "dra-driver.proofVolumes" . | nindent 0 }}
{{- include "dra-driver.volumes" . | nindent 0 }}
{{- end -}}

{{- define "dra-driver.cleanupMounts" -}}
- name: plugins  # the driver's directory is removed from it; a mount of that directory alone could not be
  mountPath: {{ .Values.kubeletDir }}/plugins
- name: token  # it deletes the node's slices; of this container alone
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- include "dra-driver.proofMounts" . | nindent 0 }}
{{- include "dra-driver.volumeMounts" . | nindent 0 }}
{{- end -}}

{{- define "dra-driver.cleanupVolumes" -}}
- name: plugins
  hostPath:
    path: {{ .Values.kubeletDir }}/plugins
    type: Directory
{{- include "dra-driver.tokenVolume" . | nindent 0 }}
{{- include "dra-driver.proofVolumes" . | nindent 0 }}
{{- include "dra-driver.volumes" . | nindent 0 }}
{{- end -}}
