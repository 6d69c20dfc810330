// Modules that are read for their CRD files, not for their code: update them by
// `go mod edit -require` and `go mod download -json MODULE`; `go mod tidy` would drop them.
module oooi.testbed/crds

go 1.24.0

require (
	github.com/k8snetworkplumbingwg/network-attachment-definition-client v1.7.7
	github.com/openshift/api v0.0.0-20240527133614-ba11c1587003
)
