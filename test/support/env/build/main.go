// Command build builds the programs of the local control plane, and Helm, ahead of the tests, which would do so without showing progress.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"sallyport.dev/sallyport/test/support/env"
)

func main() {
	old := flag.Bool("old", false, "build the API server of an older Kubernetes, too")
	cdi := flag.Bool("cdi", false, "build CDI and the controllers of CSI, too")
	kubeVirt := flag.Bool("kubevirt", false, "build virt-api and virt-controller of KubeVirt, too")
	certManager := flag.Bool("cert-manager", false, "build cert-manager's controllers, too")
	checksums := flag.Bool("checksums", false, "print lookup/sha256.txt, as the release sites publish it, and build nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	var err error
	if *checksums {
		var content string
		content, err = env.Checksums(ctx)
		fmt.Print(content)
	} else {
		err = env.Build(ctx, say)
	}
	if err == nil && *old {
		_, err = env.OldAPIServer(ctx, say, true)
	}
	if err == nil && *cdi {
		_, err = env.CDI(ctx, say, true)
	}
	if err == nil && *kubeVirt {
		_, err = env.KubeVirt(ctx, say, true)
	}
	if err == nil && *certManager {
		_, err = env.CertManager(ctx, say, true)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
