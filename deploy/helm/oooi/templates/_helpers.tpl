{{/* The reference of the manager's image. */}}
{{- define "oooi.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* By what the manager's pods are known. */}}
{{- define "oooi.labels" -}}
app.kubernetes.io/name: oooi
app.kubernetes.io/component: manager
{{- end }}

{{/* A file that kustomize uses as well, for the namespace of the release. */}}
{{- define "oooi.file" -}}
{{ .context.Files.Get (printf "files/%s" .path) | required (printf "%s is missing in the chart" .path) | replace "oooi-system" .context.Release.Namespace }}
{{- end }}

{{/* The documents of such a file, with the labels of monitoring. */}}
{{- define "oooi.labelled" -}}
{{- range splitList "\n---\n" (include "oooi.file" .) }}
{{- $document := fromYaml . }}
{{- $labels := merge (deepCopy $.context.Values.monitoring.labels) ($document.metadata.labels | default dict) }}
{{- $_ := set $document.metadata "namespace" $.context.Release.Namespace }}
{{- $_ := set $document.metadata "labels" $labels }}
---
{{ toYaml $document }}
{{- end }}
{{- end }}
