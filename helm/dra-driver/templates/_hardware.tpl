{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The only container that touches hardware. It is privileged, and it has neither the service account's token nor a mount of the kubelet's:
       whoever takes it over has the node, but not the driver's rights in the cluster. */ -}}

{{- /* "true" if the pod has the container. */ -}}
{{- define "dra-driver.hardware" -}}
{{- $chosen := .Values.backends | default (dict "auto" dict) -}}
{{- $played := or (hasKey $chosen "simulated") (hasKey $chosen "recorded") -}}
{{- $wanted := or (hasKey $chosen "nvidia") (and (hasKey $chosen "auto") (not $played)) -}}
{{- if include "dra-driver.olderBackend" . -}}
{{- $wanted = false -}}
{{- end -}}
{{- if and (not .Values.cleanup.enabled) (or (eq .Values.hardware.container "always") (and $wanted (eq .Values.hardware.container "auto"))) -}}
true
{{- end -}}
{{- end -}}

{{- define "dra-driver.hardwareSocket" -}}
/run/dra-hardware/hardware.sock
{{- end -}}

{{- /* Rendered by dra-driver.check. */ -}}
{{- define "dra-driver.checkHardware" -}}
{{- $nvidia := get (.Values.backends | default dict) "nvidia" | default dict -}}
{{- if and (eq .Values.hardware.container "never") (hasKey (.Values.backends | default dict) "nvidia") -}}
{{- fail "backends.nvidia needs the hardware container, for the driver's own has no access to devices: leave hardware.container at auto." -}}
{{- end -}}
{{- if and (eq .Values.hardware.container "always") (include "dra-driver.olderBackend" .) -}}
{{- fail "hardware.container=always has no effect with the older value backend, which reaches no hardware process: set backends instead." -}}
{{- end -}}
{{- range $name := list "socket" "hostRoot" "driverRoot" -}}
{{- if hasKey $nvidia $name -}}
{{- fail (printf "backends.nvidia sets %s, which the chart sets itself%s." $name (ternary "; set hardware.driverRoot" "" (eq $name "driverRoot"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dra-driver.hardwareContainer" -}}
- name: hardware
  image: {{ include "dra-driver.image" . | quote }}
  imagePullPolicy: {{ include "dra-driver.pullPolicy" . }}
  args:
    - hardware
    - --socket
    - {{ include "dra-driver.hardwareSocket" . }}
    - --host-root
    - /host
    {{- with include "dra-driver.driverRoot" . }}
    - --driver-root
    - {{ . }}
    {{- end }}
  env:
    - name: NVIDIA_VISIBLE_DEVICES  # NVIDIA's own runtime, where it is the default one, leaves this container alone
      value: void
    {{- with .Values.hardware.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  # It answers without looking at the hardware: a call that hangs ends the process from inside.
  livenessProbe:
    exec:
      command: [dra-driver, hardware, --socket, {{ include "dra-driver.hardwareSocket" . }}, --probe]
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: 3
  resources:
    {{- toYaml .Values.hardware.resources | nindent 4 }}
  securityContext:
    runAsUser: 0  # the socket is root's alone
    runAsGroup: 0
    privileged: true  # it opens /dev/nvidia* and whatever device file appears later; no list of devices can say that
    readOnlyRootFilesystem: true
  terminationMessagePath: /tmp/termination-log  # the default is below /dev, which is the node's own here
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - name: hardware  # its socket, for the driver's container
      mountPath: /run/dra-hardware
    - name: host  # the driver installation of the node, its firmware, /proc/driver; follows mounts of the host
      mountPath: /host
      readOnly: true
      mountPropagation: HostToContainer
    - name: dev  # the vendor's library opens device files here, and makes those that no udev rule made
      mountPath: /dev
    {{- with .Values.hardware.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "dra-driver.hardwareVolumes" -}}
- name: hardware
  emptyDir: {}
- name: host
  hostPath:
    path: /
    type: Directory
- name: dev
  hostPath:
    path: /dev
    type: Directory
{{- end -}}
