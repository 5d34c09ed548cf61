package install

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/test/env"
)

// Build builds the program of a package into a folder, and gives its path.
func Build(ctx context.Context, folder, pkg string) (binary string, err error) {
	binary = filepath.Join(folder, path.Base(pkg))
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// Options say how a manager is run.
type Options struct {
	// Binary is the sallyport program, and Command the words that have it run the manager, for which empty is "manager".
	Binary  string
	Command []string
	// Flags for the manager, after our own.
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
	address string
	ports   Ports
	process *env.Daemon
}

// Manager starts a manager. There may be several, on ports of their own.
func (s *Sallyport) Manager(cp *env.ControlPlane, o Options, ports Ports) (*Manager, error) {
	m := &Manager{address: s.Address, ports: ports}
	words := o.Command
	if len(words) == 0 {
		words = []string{"manager"}
	}
	flags := append(append([]string{}, words...),
		"--webhook-host", s.Address, "--webhook-port", strconv.Itoa(ports.Webhook), "--cert-dir", s.dir,
		"--metrics-bind-address", m.at(ports.Metrics), "--health-probe-bind-address", m.at(ports.Health),
		"--namespace", Namespace,
	)
	command := exec.Command(o.Binary, append(flags, o.Flags...)...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig()), o.Env...)
	command.Stdout, command.Stderr = o.Records, o.Logs
	var err error
	if m.process, err = env.StartDaemon(command); err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	return m, nil
}

func (m *Manager) at(port int) string { return net.JoinHostPort(m.address, strconv.Itoa(port)) }

// Webhooks is the address at which it serves the webhooks.
func (m *Manager) Webhooks() string { return m.at(m.ports.Webhook) }

// AwaitReady returns when it says that it is ready.
func (m *Manager) AwaitReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-m.process.Ended():
			return false, fmt.Errorf("it ended: %w", m.process.Err())
		default:
			_, err := m.get(ctx, m.ports.Health, "/readyz")
			return err == nil, nil
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for the manager to be ready: %w", err)
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

// Kill ends it without asking it.
func (m *Manager) Kill() error { return m.process.Kill() }

func (m *Manager) get(ctx context.Context, port int, path string) (string, error) {
	url := "http://" + m.at(port) + path
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
		err = fmt.Errorf("getting %s: %s", url, response.Status)
	}
	return string(text), err
}
