// CoreDNS with the plugins that the benchmark uses, chosen at build time as its documentation describes. Fewer plugins
// make no query cheaper, but the build takes a minute instead of ten.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
)

func init() {
	dnsserver.Directives = []string{"bind", "cache", "file", "forward"}
}

func main() {
	coremain.Run()
}
