// Asks a TLS server for its name as a Go program does: address, server name ("" for none), authority.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

func main() {
	pem, err := os.ReadFile(os.Args[3])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{ServerName: os.Args[2], RootCAs: roots, InsecureSkipVerify: os.Args[2] == ""}
	connection, err := tls.Dial("tcp", os.Args[1], config)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprintln(connection, "hi")
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(line)
}
