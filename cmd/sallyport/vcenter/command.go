// Package vcenter has the commands of sallyport that ask a vCenter, without a cluster.
package vcenter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/internal/verdict"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/check"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// NewCommand returns the command vsphere.
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "vsphere", Short: "Ask a vCenter, without a cluster", Args: cobra.NoArgs,
		Long: "Asks a vCenter, without a cluster.",
	}
	command.AddCommand(newCheckCommand())
	return command
}

// options are the flags of check.
type options struct {
	server, username, passwordFile, caFile, thumbprint string
	writeIn, resourcePool, datastore, network          string
}

func newCheckCommand() *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "check --server https://VCENTER --username USER --password-file FILE",
		Short: "Check whether a vCenter is as Sallyport needs it",
		Long: "Checks a vCenter for everything that Sallyport relies on, and prints each result. Without --write-in, it only reads. With it, it also\n" +
			"creates a template and two machines without disks and a disk of 1 GiB, with names that begin with sallyport-check-, and removes\n" +
			"them. The machines are powered on for a moment, without an operating system.\n\n" +
			"Exit codes: 0 if everything is so, 1 if something is not, 2 if the command line is invalid.",
		Example: "  sallyport vsphere check --server https://vcenter.example.org --username sallyport@vsphere.local --password-file password \\\n" +
			"    --write-in /dc-1/vm/team-a --resource-pool /dc-1/host/cluster-1/Resources --datastore /dc-1/datastore/fast --network /dc-1/network/team-a",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.Context(), terminal.Safe(command.OutOrStdout()))
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.server, "server", "", "`URL` of the vCenter, such as https://vcenter.example.org")
	flags.StringVar(&o.username, "username", "", "user of the vCenter, with the privileges that Sallyport will have")
	flags.StringVar(&o.passwordFile, "password-file", "", "`file` that has the password; - means standard input")
	flags.StringVar(&o.caFile, "ca-file", "", "`file` with authorities in PEM that have signed the certificate of the vCenter; default: those of the system")
	flags.StringVar(&o.thumbprint, "thumbprint", "", "SHA-256 of the certificate of the vCenter, instead of authorities")
	flags.StringVar(&o.writeIn, "write-in", "", "inventory path of the `folder` for a small template, machines and a disk, which are removed again")
	flags.StringVar(&o.resourcePool, "resource-pool", "", "inventory path of their resource pool, cluster or host")
	flags.StringVar(&o.datastore, "datastore", "", "inventory path of their datastore")
	flags.StringVar(&o.network, "network", "", "inventory path of their network")
	for _, name := range []string{"server", "username", "password-file"} {
		_ = command.MarkFlagRequired(name) // it exists
	}
	command.MarkFlagsRequiredTogether("write-in", "resource-pool", "datastore", "network")
	return command
}

// leaving limits the removal of what a check has made, and its logout.
const leaving = 10 * time.Minute

func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	server, err := o.connect()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
		defer cancel()
		err = errors.Join(err, server.Close(ctx))
	}()
	checked := 0
	report := func(r check.Result) {
		checked++
		print(out, r)
	}
	failed := check.Run(ctx, check.Read(server), report)
	if o.writeIn != "" && failed == 0 {
		failed = o.write(ctx, server, report)
	}
	switch {
	case failed > 0:
		return verdict.Bad(fmt.Sprintf("%d of %d checks failed", failed, checked))
	case o.writeIn == "":
		fmt.Fprintln(out, "To check what needs machines and disks, add --write-in FOLDER.")
	}
	return nil
}

func (o *options) write(ctx context.Context, server *session.Server, report func(check.Result)) (failed int) {
	facts, remove := check.Write(server, check.Places{
		Folder: v1alpha1.InventoryPath(o.writeIn), ResourcePool: v1alpha1.InventoryPath(o.resourcePool),
		Datastore: v1alpha1.InventoryPath(o.datastore), Network: v1alpha1.InventoryPath(o.network),
	})
	failed = check.Run(ctx, facts, report)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	return failed + check.Run(ctx, []check.Fact{{Name: "everything that was created is removed", Check: func(ctx context.Context) (string, error) {
		return "", remove(ctx)
	}}}, report)
}

func print(out io.Writer, r check.Result) {
	switch {
	case r.Err != nil:
		fmt.Fprintf(out, "FAILED  %s: %v\n", r.Name, r.Err)
	case r.Found != "":
		fmt.Fprintf(out, "ok      %s (%s)\n", r.Name, r.Found)
	default:
		fmt.Fprintf(out, "ok      %s\n", r.Name)
	}
}

func (o *options) connect() (*session.Server, error) {
	var bundle []byte
	if o.caFile != "" {
		var err error
		if bundle, err = os.ReadFile(o.caFile); err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
	}
	from := io.Reader(os.Stdin)
	if o.passwordFile != "-" {
		file, err := os.Open(o.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("--password-file: %w", err)
		}
		defer func() { _ = file.Close() }() // it is only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxPassword))
	if err != nil {
		return nil, fmt.Errorf("--password-file: %w", err)
	}
	password := runtime.Secret(strings.TrimRight(string(text), "\r\n"))
	return session.NewServer(session.Config{
		Name: strings.TrimPrefix(o.server, "https://"), URL: o.server, CABundle: bundle, Thumbprint: o.thumbprint,
		Credentials: func(context.Context) (*url.Userinfo, error) {
			return url.UserPassword(o.username, string(password)), nil
		},
	})
}

// maxPassword limits the bytes of a password.
const maxPassword = 4096
