{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What the driver's pod and the cleanup's pod have in common. Each mount and each permission has its reason beside it; the table
       in docs/install.md has the same ones. */ -}}

{{- define "dra-driver.podSettings" -}}
serviceAccountName: {{ include "dra-driver.serviceAccount" . }}
enableServiceLinks: false  # variables of other Services are none of its business
priorityClassName: {{ .Values.priorityClassName | quote }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if include "dra-driver.onlyGpuNodes" . }}
affinity:
  {{- include "dra-driver.gpuNodes" . | nindent 2 }}
{{- else if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- end }}
{{- with include "dra-driver.tolerations" . }}
tolerations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dra-driver.securityContext" -}}
runAsUser: 0  # the kubelet's directories and sockets belong to root
runAsGroup: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true  # it writes to the mounts below only
capabilities:
  drop: [ALL]  # root's own files need none of them
seccompProfile:
  type: RuntimeDefault
{{- with .Values.appArmorProfile }}
appArmorProfile:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "dra-driver.seLinuxOptions" . }}
seLinuxOptions:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Of one container: the pod itself does not mount the token into all of them. */ -}}
{{- define "dra-driver.tokenVolume" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                apiVersion: v1
                fieldPath: metadata.namespace
{{- end -}}

{{- /* How it is proved that a pod which used a device has no process left: of the driver, and of a cleanup for held claims. */ -}}
{{- define "dra-driver.proofEnv" -}}
- name: DRA_DRIVER_RELEASE_PROOF
  value: {{ .Values.releaseProof | quote }}
{{- if eq .Values.releaseProof "cgroups" }}
- name: DRA_DRIVER_CGROUP_ROOT
  value: /host/sys/fs/cgroup
{{- end }}
{{- end -}}

{{- define "dra-driver.proofMounts" -}}
{{- if eq .Values.releaseProof "cgroups" -}}
- name: cgroups  # whether a pod that used a device still has a process; the container's own /sys/fs/cgroup shows no other pod
  mountPath: /host/sys/fs/cgroup
  readOnly: true
  {{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
  recursiveReadOnly: IfPossible  # cgroup v1 is many mounts
  {{- end }}
{{- end }}
{{- end -}}

{{- define "dra-driver.proofVolumes" -}}
{{- if eq .Values.releaseProof "cgroups" -}}
- name: cgroups
  hostPath:
    path: {{ .Values.cgroupDir }}
    type: Directory
{{- end }}
{{- end -}}

{{- define "dra-driver.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: DRA_DRIVER_DRIVER_NAME
  value: {{ .Values.driverName | quote }}
- name: DRA_DRIVER_PLUGINS_DIR
  value: {{ printf "%s/plugins" .Values.kubeletDir | quote }}
- name: DRA_DRIVER_REGISTRY_DIR
  value: {{ printf "%s/plugins_registry" .Values.kubeletDir | quote }}
- name: DRA_DRIVER_POD_RESOURCES_SOCKET
  value: {{ printf "%s/pod-resources/kubelet.sock" .Values.kubeletDir | quote }}
- name: DRA_DRIVER_CDI_DIR
  value: {{ include "dra-driver.cdiDir" . | quote }}
- name: DRA_DRIVER_HTTP_ADDRESS
  value: {{ printf ":%d" (int .Values.httpPort) | quote }}
- name: DRA_DRIVER_METRICS_NAMES
  value: {{ join "," .Values.metrics.names | quote }}
- name: DRA_DRIVER_LOG_LEVEL
  value: {{ .Values.log.level | quote }}
- name: DRA_DRIVER_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- with .Values.proxy.https }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .Values.proxy.noProxy }}
- name: NO_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Paths are the same inside and outside: the driver tells the kubelet where its sockets are. */ -}}
{{- define "dra-driver.volumeMounts" -}}
- name: registry  # the kubelet finds drivers by their sockets here
  mountPath: {{ .Values.kubeletDir }}/plugins_registry
- name: pod-resources  # asked, before a claim is released, whether a pod still holds it
  mountPath: {{ .Values.kubeletDir }}/pod-resources
  readOnly: true
- name: cdi  # one file for each prepared claim
  mountPath: {{ include "dra-driver.cdiDir" . }}
{{- if ne .Values.nodeLabels "none" }}
- name: features  # one file, from which Node Feature Discovery makes labels
  mountPath: /etc/kubernetes/node-feature-discovery/features.d
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dra-driver.volumes" -}}
- name: registry
  hostPath:
    path: {{ .Values.kubeletDir }}/plugins_registry
    type: Directory  # made by the kubelet: the pod's event says so if kubeletDir is wrong
- name: pod-resources
  hostPath:
    path: {{ .Values.kubeletDir }}/pod-resources
    type: Directory
- name: cdi
  hostPath:
    path: {{ include "dra-driver.cdiDir" . }}
    type: DirectoryOrCreate  # empty or absent after a boot
{{- if ne .Values.nodeLabels "none" }}
- name: features
  hostPath:
    path: /etc/kubernetes/node-feature-discovery/features.d
    type: DirectoryOrCreate  # Node Feature Discovery, which makes it too, may come later
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
