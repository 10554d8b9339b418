{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The files of deviceclasses/ with the driver's name, as a list of name, spec, and whether it is a class of NVIDIA's driver. The DeviceClasses of the
       cluster and the files of the device plugin API are both made of it. `extended`: with the names of extended resources. */ -}}
{{- define "dra-driver.classes" -}}
{{- $root := .root -}}
{{- $chosen := $root.Values.deviceClasses -}}
{{- $classes := list -}}
{{- range $path, $_ := $root.Files.Glob "deviceclasses/*.yaml" -}}
{{- $classes = append $classes (dict "text" ($root.Files.Get $path | replace "gpu.dra-driver.dev" $root.Values.driverName) "nvidia" false) -}}
{{- end -}}
{{- if or (eq $chosen.nvidia.enabled "always") (and (eq $chosen.nvidia.enabled "auto") (eq $root.Values.driverName "gpu.nvidia.com")) -}}
{{- $one := $root.Files.Get "deviceclasses/nvidia/mig-1g.5gb.nvidia.com.yaml" -}}
{{- range $profile := $chosen.nvidia.migProfiles -}}
{{- /* A name has no +; the attribute has. */ -}}
{{- $classes = append $classes (dict "text" ($one | replace "mig-1g.5gb" (printf "mig-%s" (replace "+" "." $profile)) | replace "\"1g.5gb\"" ($profile | quote)) "nvidia" true) -}}
{{- end -}}
{{- $classes = append $classes (dict "text" ($root.Files.Get "deviceclasses/nvidia/gpu.nvidia.com.yaml") "nvidia" true) -}}
{{- $classes = append $classes (dict "text" ($root.Files.Get "deviceclasses/nvidia/mig.nvidia.com.yaml") "nvidia" true) -}}
{{- end -}}
{{- $found := list -}}
{{- range $class := $classes -}}
{{- /* In quotes the driver's name is a selector's; without, it is a class's. */ -}}
{{- $text := $class.text | replace "\"gpu.nvidia.com\"" ($root.Values.driverName | quote) -}}
{{- if and $.extended $chosen.nvidia.extendedResources -}}
{{- $text = $text | replace "# extendedResourceName:" "extendedResourceName:" -}}
{{- end -}}
{{- $object := $text | fromYaml -}}
{{- $spec := $object.spec -}}
{{- $resource := get ($chosen.extendedResources | default dict) $object.metadata.name -}}
{{- if and $.extended $resource -}}
{{- $spec = set $spec "extendedResourceName" $resource -}}
{{- end -}}
{{- $found = append $found (dict "name" $object.metadata.name "spec" $spec "nvidia" $class.nvidia) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
