package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// Tags are what make build builds with.
const Tags = env.Tags

// link links a file, or copies it to another file system.
const link = `sh -c 'rm -f "$1"; ln "$0" "$1" 2>/dev/null || cp "$0" "$1"'`

// Build builds the program of a package into a folder, and gives its path. Go keeps what it has linked for `go run`, but not for
// `go build`: so it has the copy run, and the packages of tests do not link the same program one after another.
func Build(ctx context.Context, folder, pkg string) (binary string, err error) {
	binary = filepath.Join(folder, path.Base(pkg))
	if out, err := exec.CommandContext(ctx, "go", "run", "-tags", Tags, "-ldflags=-s -w", "-exec", link, pkg, binary).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// Plugin puts the plugin of kubectl into a folder for PATH, as make build does: the program under the names that kubectl looks for.
func Plugin(folder, binary string) error {
	var errs []error
	for _, name := range []string{"kubectl-sallyport", "kubectl_complete-sallyport"} {
		errs = append(errs, os.Symlink(binary, filepath.Join(folder, name)))
	}
	return errors.Join(errs...)
}

// Options say what is installed and how managers are run.
type Options struct {
	// Values are the chart's, as for helm's --set.
	Values []string
	// Binary is the sallyport program.
	Binary string
	// Flags for the manager, after those of the chart and our own.
	Flags []string
	// Env is added to the environment, as NAME=value.
	Env []string
	// Records receives the decision records, a line of JSON each; Logs what the manager logs. Either may be nil.
	Records, Logs io.Writer
}

// Ports are where a manager listens, on the Service's address.
type Ports struct {
	Webhook, Metrics, Health int
}

// Manager is a manager, a process of its own.
type Manager struct {
	// Name is that of the replica.
	Name string

	address string
	ports   Ports
	process *env.Daemon
}

// Manager starts a manager, as a replica of that name but without a pod. There may be several, on ports of their own.
func (s *Sallyport) Manager(o Options, name string, ports Ports) (*Manager, error) {
	args, environment, err := s.deployed.as(Namespace, name, "")
	if err != nil {
		return nil, err
	}
	o.Flags = append([]string{"--shutdown-delay", "0s"}, o.Flags...)
	m := &Manager{Name: name, address: s.Address, ports: ports}
	if err := m.run(o, s.kubeconfig, args, environment); err != nil {
		return nil, err
	}
	return m, nil
}

// run starts it with the arguments and the environment of its container, but for what has to be otherwise outside of a pod or
// would have tests wait.
func (m *Manager) run(o Options, kubeconfig string, args, environment []string) (err error) {
	args = append(args,
		"--webhook-host", m.address, "--webhook-port", strconv.Itoa(m.ports.Webhook),
		"--metrics-bind-address", m.at(m.ports.Metrics), "--health-probe-bind-address", m.at(m.ports.Health),
		"--namespace", Namespace, "--replica-name", m.Name, "--certificate-settle", "1s", "--certificate-poll", "200ms",
		"--retry-period", "500ms",
	)
	command := exec.Command(o.Binary, append(args, o.Flags...)...)
	command.Env = append(append(append(os.Environ(), environment...), "KUBECONFIG="+kubeconfig), o.Env...)
	command.Stdout, command.Stderr = o.Records, o.Logs
	if m.process, err = env.StartDaemon(command); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	return nil
}

func (m *Manager) at(port int) string { return net.JoinHostPort(m.address, strconv.Itoa(port)) }

// Webhooks is the address at which it serves the webhooks.
func (m *Manager) Webhooks() string { return m.at(m.ports.Webhook) }

// Backend has a balancer give it connections while it is ready.
func (m *Manager) Backend() Backend {
	return Backend{Address: m.Webhooks(), Ready: ReadyAt(m.url(m.ports.Health, "/readyz"))}
}

// AwaitReady returns when it says that it is ready.
func (m *Manager) AwaitReady(ctx context.Context) error {
	var last error
	err := step.Await(ctx, func(ctx context.Context) (bool, error) {
		select {
		case <-m.process.Ended():
			return false, fmt.Errorf("it ended: %w", m.process.Err())
		default:
			_, last = m.get(ctx, m.ports.Health, "/readyz?verbose")
			return last == nil, nil
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for the manager to be ready: %w; it said: %w", err, last)
	}
	return nil
}

// Metrics gives its metrics as text.
func (m *Manager) Metrics(ctx context.Context) (string, error) {
	return m.get(ctx, m.ports.Metrics, "/metrics")
}

// Ended is closed when it has ended.
func (m *Manager) Ended() <-chan struct{} { return m.process.Ended() }

// Stop asks it to end and returns when it has.
func (m *Manager) Stop() error { return m.process.Stop(patience) }

// Pause stops it, until resume is called.
func (m *Manager) Pause() (resume func() error, err error) { return m.process.Pause() }

// Kill ends it without asking it.
func (m *Manager) Kill() error { return m.process.Kill() }

func (m *Manager) url(port int, path string) string { return "http://" + m.at(port) + path }

func (m *Manager) get(ctx context.Context, port int, path string) (string, error) {
	url := m.url(port, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("getting %s: %s: %s", url, response.Status, text)
	}
	return string(text), err
}
