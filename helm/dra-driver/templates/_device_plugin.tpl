{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The device plugin API: what its part of the driver is told and mounts. */ -}}

{{- /* The driver's --path. A cluster without resource.k8s.io has no other API, and its release gets no rights for one. So the driver does not
       change over by itself when the cluster is upgraded: the next `helm upgrade` does it, together with rights, classes and policies. */ -}}
{{- define "dra-driver.path" -}}
{{- if and (eq .Values.path "auto") (not (include "dra-driver.resourceApiVersion" .)) -}}
device-plugin
{{- else -}}
{{- .Values.path -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the driver may serve the device plugin API. */ -}}
{{- define "dra-driver.servesPlugin" -}}
{{- if and (not .Values.cleanup.enabled) (ne (include "dra-driver.path" .) "dra") -}}
true
{{- end -}}
{{- end -}}

{{- /* The ConfigMap with the driver's classes; "" if there is none. */ -}}
{{- define "dra-driver.classFiles" -}}
{{- $plugin := .Values.devicePlugin -}}
{{- if and (include "dra-driver.servesPlugin" .) (eq $plugin.resources "classes") -}}
{{- if $plugin.existingConfigMap -}}
{{- $plugin.existingConfigMap -}}
{{- else if or $plugin.classes (include "dra-driver.offeredClasses" . | fromYamlArray) -}}
{{- include "dra-driver.fullname" . }}-classes
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* "true" if the driver asks the cluster for classes: it serves them, and no file is sure to have one. */ -}}
{{- define "dra-driver.listsClasses" -}}
{{- $plugin := .Values.devicePlugin -}}
{{- $brings := and (not $plugin.existingConfigMap) (include "dra-driver.classFiles" .) -}}
{{- if and (include "dra-driver.servesPlugin" .) (eq $plugin.resources "classes") (not $brings) -}}
true
{{- end -}}
{{- end -}}

{{- /* The shipped classes that the device plugin API offers, in the order in which they count: NVIDIA's, where they are installed, and then those
       that the value names. A profile's class is before that of any profile. */ -}}
{{- define "dra-driver.offeredClasses" -}}
{{- $shipped := dict -}}
{{- $offered := list -}}
{{- range $class := include "dra-driver.classes" (dict "root" . "extended" true) | fromYamlArray -}}
{{- $shipped = set $shipped $class.name $class -}}
{{- if $class.nvidia -}}
{{- $offered = append $offered (omit $class "nvidia") -}}
{{- end -}}
{{- end -}}
{{- range $name := .Values.devicePlugin.shippedClasses -}}
{{- $class := get $shipped $name -}}
{{- if not $class -}}
{{- fail (printf "devicePlugin.shippedClasses names %s, and this chart ships no such class; there are %s. Write a class of your own into devicePlugin.classes." $name (keys $shipped | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if not $class.nvidia -}}
{{- $offered = append $offered $class -}}
{{- end -}}
{{- end -}}
{{- toYaml $offered -}}
{{- end -}}

{{- define "dra-driver.nvidiaConfigDir" -}}
/etc/dra-driver-nvidia
{{- end -}}

{{- define "dra-driver.classesDir" -}}
/etc/dra-driver-classes
{{- end -}}

{{- /* The section devicePlugin of the driver's configuration: what the values say, and nothing for the rest. */ -}}
{{- define "dra-driver.pluginSection" -}}
{{- $section := dict -}}
{{- range $key := list "timeSlicing" "memoryUnits" "paths" "migStrategy" "allocationPolicy" "foreign" -}}
{{- with get $.Values.devicePlugin $key -}}
{{- $section = set $section $key . -}}
{{- end -}}
{{- end -}}
{{- toYaml $section -}}
{{- end -}}

{{- define "dra-driver.pluginEnv" -}}
- name: DRA_DRIVER_PATH
  value: {{ include "dra-driver.path" . | quote }}
- name: DRA_DRIVER_DEVICE_PLUGINS_DIR
  value: {{ printf "%s/device-plugins" .Values.kubeletDir | quote }}
{{- if include "dra-driver.servesPlugin" . }}
- name: DRA_DRIVER_PLUGIN_RESOURCES
  value: {{ .Values.devicePlugin.resources | quote }}
- name: DRA_DRIVER_DEVICE_LIST_STRATEGY
  value: {{ .Values.devicePlugin.deviceListStrategy | quote }}
{{- if include "dra-driver.classFiles" . }}
- name: DRA_DRIVER_DEVICE_CLASSES_DIR
  value: {{ include "dra-driver.classesDir" . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "dra-driver.pluginMounts" -}}
- name: device-plugins  # the kubelet's socket and checkpoint of device plugins, and the sockets of this driver's resources
  mountPath: {{ .Values.kubeletDir }}/device-plugins
{{- if include "dra-driver.classFiles" . }}
- name: classes  # what the device plugin API offers; followed while the driver runs
  mountPath: {{ include "dra-driver.classesDir" . }}
  readOnly: true
{{- end }}
{{- if .Values.devicePlugin.nvidiaConfigMap.name }}
- name: nvidia-config  # the configurations of NVIDIA's device plugin; followed while the driver runs
  mountPath: {{ include "dra-driver.nvidiaConfigDir" . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "dra-driver.pluginVolumes" -}}
- name: device-plugins
  hostPath:
    path: {{ .Values.kubeletDir }}/device-plugins
    type: Directory  # made by the kubelet
{{- with include "dra-driver.classFiles" . }}
- name: classes
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- with .Values.devicePlugin.nvidiaConfigMap.name }}
- name: nvidia-config
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* Rendered by dra-driver.check. */ -}}
{{- define "dra-driver.checkPlugin" -}}
{{- $plugin := .Values.devicePlugin -}}
{{- $version := include "dra-driver.resourceApiVersion" . -}}
{{- if and (eq .Values.path "dra") (not $version) -}}
{{- fail (printf "path is dra, and this cluster (Kubernetes %s) serves resource.k8s.io in none of the versions v1, v1beta2 and v1beta1. Kubernetes 1.34 and later serve v1 by default; on 1.32 and 1.33 enable the feature gate DynamicResourceAllocation on every component and start the API server with --runtime-config=resource.k8s.io/v1beta1=true (1.33: v1beta2 too). With path=auto pods get devices through the device plugin API." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and $plugin.existingConfigMap $plugin.classes -}}
{{- fail "Set either devicePlugin.classes or devicePlugin.existingConfigMap: the second is instead of all other classes." -}}
{{- end -}}
{{- if and (eq $plugin.resources "customary") (or $plugin.existingConfigMap $plugin.classes) -}}
{{- fail "devicePlugin.resources is customary, and then no class counts: leave devicePlugin.classes and devicePlugin.existingConfigMap, or set devicePlugin.resources=classes." -}}
{{- end -}}
{{- if and (include "dra-driver.olderBackend" .) (or $plugin.nvidiaConfigMap.name (include "dra-driver.pluginSection" . | fromYaml)) -}}
{{- fail "The older value backend has no configuration file, so timeSlicing, memoryUnits, paths, migStrategy, allocationPolicy and nvidiaConfigMap of devicePlugin do not reach the driver: set backends instead." -}}
{{- end -}}
{{- if $plugin.nvidiaConfigMap.name -}}
{{- if not (include "dra-driver.hardware" .) -}}
{{- if not .Values.cleanup.enabled -}}
{{- fail "devicePlugin.nvidiaConfigMap is read by the NVIDIA backend, and no container has the hardware: set backends.nvidia, or leave it." -}}
{{- end -}}
{{- end -}}
{{- $nvidia := get (.Values.backends | default dict) "nvidia" | default dict -}}
{{- if hasKey $nvidia "devicePlugin" -}}
{{- fail "Set either devicePlugin.nvidiaConfigMap or backends.nvidia.devicePlugin: the chart makes the second from the first." -}}
{{- end -}}
{{- end -}}
{{- $classes := include "dra-driver.classes" (dict "root" . "extended" true) | fromYamlArray -}}
{{- $shipped := list -}}
{{- $nvidias := false -}}
{{- range $class := $classes -}}
{{- $shipped = append $shipped $class.name -}}
{{- $nvidias = or $nvidias $class.nvidia -}}
{{- end -}}
{{- range $name, $resource := .Values.deviceClasses.extendedResources -}}
{{- if not (has $name $shipped) -}}
{{- fail (printf "deviceClasses.extendedResources names %s, and this chart ships no such class; there are %s." $name ($shipped | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $class := $classes -}}
{{- with $class.spec.extendedResourceName -}}
{{- if hasKey $taken . -}}
{{- $values := ternary "deviceClasses.extendedResources and deviceClasses.nvidia.extendedResources give" "deviceClasses.extendedResources gives" (and $class.nvidia $.Values.deviceClasses.nvidia.extendedResources) -}}
{{- fail (printf "%s %s to the classes %s and %s: a resource is one class." $values . (get $taken .) $class.name) -}}
{{- end -}}
{{- $taken = set $taken . $class.name -}}
{{- end -}}
{{- end -}}
{{- $named := or .Values.deviceClasses.nvidia.extendedResources .Values.deviceClasses.extendedResources -}}
{{- if and $named $version (ne $version "resource.k8s.io/v1") (ne .Values.path "device-plugin") -}}
{{- fail (printf "deviceClasses.extendedResources needs resource.k8s.io/v1, from Kubernetes 1.34 on, as deviceClasses.nvidia.extendedResources does, and the classes are made as %s. Leave both, or set deviceClasses.apiVersion=v1 where the cluster serves it, or path=device-plugin." $version) -}}
{{- end -}}
{{- if and .Values.deviceClasses.nvidia.extendedResources (not $nvidias) -}}
{{- fail "deviceClasses.nvidia.extendedResources is true, but NVIDIA's classes are not installed: set deviceClasses.nvidia.enabled=always" -}}
{{- end -}}
{{- end -}}
