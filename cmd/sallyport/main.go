// Command sallyport is the single binary of Sallyport: the manager that serves the webhooks, the tools for policies, and, under the
// name kubectl-sallyport, the kubectl plugin.
package main

import (
	"os"

	"sallyport.dev/sallyport/cmd/sallyport/program"
)

func main() { os.Exit(program.Main()) }
