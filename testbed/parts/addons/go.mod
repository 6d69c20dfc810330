// Modules that are read for their CRD files, as in ../crds.
module oooi.testbed/addons

go 1.24.0

require (
	github.com/operator-framework/api v0.36.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
