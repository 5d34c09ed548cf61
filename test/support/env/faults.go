package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const portFlag = "--secure-port="

// AddAPIServer starts one more API server on the same etcd, with the flags of the first, and returns how to reach it.
func (cp *ControlPlane) AddAPIServer(ctx context.Context) (*rest.Config, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("port of another API server: %w", err)
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	args, err := cp.argsOf(APIServer)
	if err = errors.Join(err, free.Close()); err != nil {
		return nil, err
	}
	for i, arg := range args {
		if strings.HasPrefix(arg, portFlag) {
			args[i] = portFlag + port
		}
	}
	config := rest.CopyConfig(cp.Config)
	config.Host = "https://127.0.0.1:" + port
	return config, cp.runAPIServer(ctx, APIServer+"-"+port, args, config)
}

// RestartAPIServer kills the first API server, and starts it again some time later. It returns when it is ready.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context, away time.Duration) error {
	args, err := cp.argsOf(APIServer)
	if err != nil {
		return err
	}
	if err := cp.dir.kill(APIServer); err != nil {
		return err
	}
	select {
	case <-time.After(away):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return cp.runAPIServer(ctx, APIServer, args, cp.Config)
}

// Pause stops the process of a component, until resume is called.
func (cp *ControlPlane) Pause(component string) (resume func() error, err error) {
	processes := cp.dir.processes(component)
	if len(processes) != 1 {
		return nil, fmt.Errorf("%d processes of %s run", len(processes), component)
	}
	return func() error { return processes[0].Signal(resumeSignal) }, processes[0].Signal(pauseSignal)
}

// BackUpEtcd copies the data of etcd into a new folder, as a snapshot of its disk does.
func (cp *ControlPlane) BackUpEtcd(folder string) error {
	resume, err := cp.Pause(Etcd)
	if err != nil {
		return err
	}
	if err := errors.Join(os.CopyFS(folder, os.DirFS(cp.dir.path(Etcd))), resume()); err != nil {
		return fmt.Errorf("backing up etcd: %w", err)
	}
	return nil
}

// RestoreEtcd kills etcd and the first API server, and starts them with the data of a backup. It returns when the API server is ready.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, backup string) error {
	etcd, errEtcd := cp.argsOf(Etcd)
	server, errServer := cp.argsOf(APIServer)
	if err := errors.Join(errEtcd, errServer); err != nil {
		return err
	}
	data := cp.dir.path(Etcd)
	if err := errors.Join(cp.dir.kill(APIServer), cp.dir.kill(Etcd), os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup))); err != nil {
		return fmt.Errorf("restoring etcd: %w", err)
	}
	if err := cp.runDaemon(Etcd, Etcd, cp.Assets.Etcd, etcd); err != nil {
		return err
	}
	return cp.runAPIServer(ctx, APIServer, server, cp.Config)
}

// argsOf returns the arguments of a component that runs.
func (cp *ControlPlane) argsOf(component string) ([]string, error) {
	processes := cp.dir.processes(component)
	if len(processes) != 1 {
		return nil, fmt.Errorf("%d processes of %s run", len(processes), component)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", processes[0].Pid))
	if err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", component, err)
	}
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")[1:]
	return slices.Clip(args), nil
}

// runDaemon starts a component under a name.
func (cp *ControlPlane) runDaemon(component, name, program string, args []string) error {
	launcher, err := cp.dir.launcher(name, program)
	if err != nil {
		return err
	}
	cmd := exec.Command(launcher, args...)
	cmd.Stdout, cmd.Stderr = cp.logs[component], cp.logs[component]
	_, err = StartDaemon(cmd)
	return err
}

// runAPIServer starts an API server and waits until it is ready.
func (cp *ControlPlane) runAPIServer(ctx context.Context, name string, args []string, config *rest.Config) error {
	if err := cp.runDaemon(APIServer, name, cp.Assets.APIServer, args); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if err := wait.PollUntilContextTimeout(ctx, 25*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		return clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	}); err != nil {
		return cp.failed(APIServer, err)
	}
	return nil
}
