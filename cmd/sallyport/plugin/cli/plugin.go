// Package cli has what all commands of the plugin share: the connection to a cluster, the selection of objects, dry runs, the requests
// that are tried, and text in columns.
package cli

import (
	"io"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/cmd/internal/nesting"
	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// Plugin is what all commands share.
type Plugin struct {
	// IOStreams are for text. They escape control characters.
	genericiooptions.IOStreams
	// Raw is for objects in the format of --output.
	Raw io.Writer
	// Flags are those of the connection to a cluster.
	Flags *genericclioptions.ConfigFlags
	// Clock is the clock of the cluster.
	Clock *Clock
	// Patience is how long a command waits until Sallyport has reconciled its change.
	Patience time.Duration
}

// DefaultPatience is long enough for a running manager and short enough to wait for one that does not run.
const DefaultPatience = 5 * time.Second

// New returns the plugin of one command line.
func New(streams genericiooptions.IOStreams) *Plugin {
	raw := streams.Out
	streams.Out, streams.ErrOut = terminal.Safe(streams.Out), terminal.Safe(streams.ErrOut)
	p := &Plugin{IOStreams: streams, Raw: raw, Flags: genericclioptions.NewConfigFlags(true), Clock: &Clock{Local: time.Now}, Patience: DefaultPatience}
	p.Flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		p.Clock.wrap(config)
		config.Wrap(nesting.Limit)
		return config
	}
	return p
}

// Now returns the time of the cluster.
func (p *Plugin) Now() time.Time { return p.Clock.Now() }
