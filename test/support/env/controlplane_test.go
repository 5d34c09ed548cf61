package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// processesOf returns the pids of all processes that have a control plane's folder in their command line.
func processesOf(dir string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []string
	for _, file := range files {
		if cmdline, err := os.ReadFile(file); err == nil && bytes.Contains(cmdline, []byte(dir)) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// gone returns an error as long as something is left of a control plane.
func gone(dir string) error {
	if pids := processesOf(dir); len(pids) > 0 {
		return fmt.Errorf("processes %v run", pids)
	}
	_, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(fmt.Errorf("folder %s is still there", dir), err)
}

func TestSharedIsOne(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	if first, second := Shared(t), Shared(t); first != second {
		t.Error("two calls of Shared, two control planes")
	}
}

func TestKubectl(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	var version struct {
		ClientVersion, ServerVersion struct{ GitVersion string }
	}
	if err := json.Unmarshal([]byte(kubectl(t, cp, "version", "-o", "json")), &version); err != nil {
		t.Fatal(err)
	}
	if version.ServerVersion != version.ClientVersion || version.ServerVersion.GitVersion == "" {
		t.Errorf("kubectl version: %+v", version)
	}
	minor := KubernetesVersion()[:strings.LastIndex(KubernetesVersion(), ".")+1]
	if os.Getenv(lookup.AssetsVariable) == "" && !strings.HasPrefix(version.ServerVersion.GitVersion, minor) {
		t.Errorf("server version %s, wanted was %s", version.ServerVersion.GitVersion, KubernetesVersion())
	}

	stdout, stderr, code := cp.Kubectl(t.Context(), "get", "pod", "missing")
	if stdout != "" || !strings.Contains(stderr, "NotFound") || code != 1 {
		t.Errorf("kubectl get pod missing: %q, %q, exit code %d", stdout, stderr, code)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, stderr, code := cp.Kubectl(ended, "version"); code != -1 || !strings.Contains(stderr, "context canceled") {
		t.Errorf("kubectl with a context that has ended: %q, exit code %d", stderr, code)
	}

	var both strings.Builder
	code = cp.KubectlTo(t.Context(), cp.Kubeconfig(), nil, &both, "get", "namespace/default", "pod/missing", "-o", "name")
	if got := both.String(); !strings.HasPrefix(got, "namespace/default\n") || !strings.Contains(got, "NotFound") || code != 1 {
		t.Errorf("both outputs of kubectl in one: %q, exit code %d", got, code)
	}
	both.Reset()
	if code := cp.KubectlTo(ended, cp.Kubeconfig(), nil, &both, "version"); code != -1 || both.String() != "" {
		t.Errorf("both outputs with a context that has ended: %q, exit code %d", &both, code)
	}
}

func TestUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	user, err := cp.UserKubeconfig("jane", "team-a", "team-b")
	if err != nil {
		t.Fatal(err)
	}
	// Made here, so that the wait for the controller manager is not part of the test.
	kubectl(t, cp, "create", "namespace", "users")
	kubectl(t, cp, "create", "serviceaccount", "robot", "-n", "users")
	robot, err := cp.ServiceAccountKubeconfig(t.Context(), "users", "robot")
	if err != nil {
		t.Fatal(err)
	}
	for kubeconfig, want := range map[string]string{
		cp.Kubeconfig(): "admin [system:masters system:authenticated]",
		user:            "jane [team-a team-b system:authenticated]",
		robot: "system:serviceaccount:users:robot " +
			"[system:serviceaccounts system:serviceaccounts:users system:authenticated]",
	} {
		got, stderr, code := cp.KubectlAs(t.Context(), kubeconfig, nil, "auth", "whoami",
			"-o", "go-template={{.status.userInfo.username}} {{.status.userInfo.groups}}")
		if got != want || code != 0 {
			t.Errorf("kubectl auth whoami: %q, %q, exit code %d; want %q", got, stderr, code, want)
		}
	}

	manifest := strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"users"}}`)
	if _, stderr, code := cp.KubectlAs(t.Context(), user, manifest, "create", "-f", "-"); code != 1 || !strings.Contains(stderr, "Forbidden") {
		t.Errorf("a user without any role: %q, exit code %d", stderr, code)
	}
}

func TestInstallCRDs(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	crd := definition("laters", "Later")
	unchanged := crd.DeepCopy()
	for range 2 { // the second time it is updated
		if err := cp.InstallCRDs(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	if crd.String() != unchanged.String() {
		t.Error("InstallCRDs changed its argument")
	}
	create(t, cp, `{"apiVersion":"test.sallyport.dev/v1","kind":"Later","metadata":{"name":"one","namespace":"default"}}`)
	if got := kubectl(t, cp, "get", "laters", "-o", "name"); got != "later.test.sallyport.dev/one\n" {
		t.Errorf("kubectl get: %q", got)
	}
}

func TestGarbageCollection(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.Config).CoreV1().ConfigMaps("default")
	kubectl(t, cp, "create", "configmap", "plain-owner")
	create(t, cp, `{"apiVersion":"test.sallyport.dev/v1","kind":"Known","metadata":{"name":"owner","namespace":"default"}}`)
	for owner, ref := range map[string]metav1.OwnerReference{
		"configmap/plain-owner": {APIVersion: "v1", Kind: "ConfigMap", Name: "plain-owner"},
		"known/owner":           {APIVersion: "test.sallyport.dev/v1", Kind: "Known", Name: "owner"},
	} {
		t.Run(ref.Kind, func(t *testing.T) {
			ref.UID = types.UID(kubectl(t, cp, "get", owner, "-o", "jsonpath={.metadata.uid}"))
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: "of-" + ref.Name, OwnerReferences: []metav1.OwnerReference{ref},
			}}
			if _, err := client.Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			kubectl(t, cp, "delete", owner)
			eventually(t, "the dependent to go", func(ctx context.Context) error {
				_, err := client.Get(ctx, dependent.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("still there: %w", err)
			})
		})
	}
}

func TestNamespaceDeletionAndDeployment(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	kubectl(t, cp, "create", "namespace", "short-lived")
	kubectl(t, cp, "create", "deployment", "web", "-n", "short-lived", "--image=example.com/web:1", "--replicas=2")
	eventually(t, "the Deployment's Pods", func(context.Context) error {
		if got := kubectl(t, cp, "get", "pods", "-n", "short-lived", "-o", "name"); strings.Count(got, "pod/web-") != 2 {
			return fmt.Errorf("pods: %q", got)
		}
		return nil
	})
	kubectl(t, cp, "delete", "namespace", "short-lived", "--timeout=30s") // waits until it is gone
}

func TestAutoscalerScalesCustomResources(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := Shared(t)
	create(t, cp, `{"apiVersion":"test.sallyport.dev/v1","kind":"Known","metadata":{"name":"scaled","namespace":"default"},
		"spec":{"replicas":1}}`)
	// Below its minimum it scales without any metrics.
	create(t, cp, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler",
		"metadata":{"name":"scaled","namespace":"default"},
		"spec":{"minReplicas":3,"maxReplicas":5,
			"scaleTargetRef":{"apiVersion":"test.sallyport.dev/v1","kind":"Known","name":"scaled"}}}`)
	eventually(t, "the autoscaler", func(context.Context) error {
		if got := kubectl(t, cp, "get", "known", "scaled", "-o", "jsonpath={.spec.replicas}"); got != "3" {
			return fmt.Errorf("%s replicas; %s", got,
				kubectl(t, cp, "get", "hpa", "scaled", "-o", "jsonpath={.status.conditions}"))
		}
		return nil
	})
}

func TestTwoControlPlanesAuditAndStop(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	first := Shared(t)
	audit := filepath.Join(t.TempDir(), "audit.log")
	second, err := Start(t.Context(), Options{AuditLog: audit})
	if err != nil {
		t.Fatal(err)
	}
	if first.ServiceRange == second.ServiceRange || first.Config.Host == second.Config.Host {
		t.Errorf("two control planes share %s or %s", first.ServiceRange, first.Config.Host)
	}
	// Without the controller manager, Pods need no ServiceAccount.
	kubectl(t, second, "run", "pod", "--image=example.com/x:1")
	eventually(t, "the audit event", func(context.Context) error {
		content, err := os.ReadFile(audit)
		if err == nil && !bytes.Contains(content, []byte(`"requestURI":"/api/v1/namespaces/default/pods?`)) {
			return fmt.Errorf("the log has %d bytes, none of the Pod", len(content))
		}
		return err
	})
	if got := kubectl(t, first, "get", "pods", "-n", "default", "-o", "name"); got != "" {
		t.Errorf("the first control plane has the second one's Pod: %q", got)
	}
	for _, component := range []string{Etcd, APIServer} {
		if second.LogTail(component) == "" {
			t.Errorf("no log of %s", component)
		}
	}
	if got := second.LogTail(ControllerManager); got != "" {
		t.Errorf("log of a component that does not run: %q", got)
	}

	dir := string(second.dir)
	if pids := processesOf(dir); len(pids) != 3 {
		t.Errorf("processes %v, want etcd, kube-apiserver and the guard", pids)
	}
	for range 2 {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := gone(dir); err != nil {
		t.Error(err)
	}
	kubectl(t, first, "get", "namespaces") // still there
}

func TestEndOfContextStops(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cp, err := Start(ctx, Options{ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	eventually(t, "the control plane to end", func(context.Context) error { return gone(string(cp.dir)) })
}

func TestFailedStartTellsWhy(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for component, opts := range map[string]Options{
		APIServer:         {APIServerFlags: map[string]string{"no-such-flag": "x"}},
		ControllerManager: {ControllerManager: true, ControllerManagerFlags: map[string]string{"no-such-flag": "x"}},
	} {
		t.Run(component, func(t *testing.T) {
			cp, err := Start(t.Context(), opts)
			if err == nil {
				_ = cp.Stop()
				t.Fatal("it started")
			}
			for _, want := range []string{component, "unknown flag: --no-such-flag"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := Start(ctx, Options{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start() = %v", err)
		}
	})
	if pids := processesOf(temp); len(pids) > 0 {
		t.Errorf("failed starts left the processes %v", pids)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "sallyport-env-*")); len(left) > 0 {
		t.Errorf("failed starts left %v", left)
	}
}

// helperAbandon makes this test binary one that dies without stopping its control plane.
const helperAbandon = "SALLYPORT_ENV_TEST_ABANDON"

func TestKilledTestTakesItsControlPlaneAlong(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	if os.Getenv(helperAbandon) != "" {
		cp, err := Start(context.Background(), Options{ControllerManager: true})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("dir=%s\n", cp.dir)
		select {} // until killed
	}
	other := exec.Command(os.Args[0], "-test.run=^TestKilledTestTakesItsControlPlaneAlong$", "-test.v")
	other.Env = append(os.Environ(), helperAbandon+"=1")
	var out tail
	other.Stdout, other.Stderr = &out, &out
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill() }()
	var dir string
	eventually(t, "the other test's control plane", func(context.Context) error {
		_, rest, _ := strings.Cut(out.String(), "dir=")
		line, _, whole := strings.Cut(rest, "\n")
		if !whole {
			return errors.New(out.String())
		}
		dir = line
		return nil
	})
	if pids := processesOf(dir); len(pids) != 4 {
		t.Errorf("processes %v, want three components and the guard", pids)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the abandoned control plane to end", func(context.Context) error { return gone(dir) })
	_ = other.Wait()
}

func TestLeaseServiceRange(t *testing.T) {
	all := netip.MustParsePrefix("127.96.0.0/12")
	seen := map[string]func(){}
	for range 3 {
		cidr, release, err := leaseServiceRange()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		prefix := netip.MustParsePrefix(cidr)
		if prefix.Bits() != 24 || prefix != prefix.Masked() || !all.Contains(prefix.Addr()) {
			t.Errorf("range %s", cidr)
		}
		if seen[cidr] != nil {
			t.Errorf("%s is used twice", cidr)
		}
		seen[cidr] = release
		listener, err := net.Listen("tcp", net.JoinHostPort(prefix.Addr().Next().String(), "0"))
		if err != nil {
			t.Errorf("nobody can listen in %s: %v", cidr, err)
			continue
		}
		_ = listener.Close()
	}
	for cidr, release := range seen {
		release()
		socket, err := net.Listen("unix", "@sallyport-env-services-"+cidr)
		if err != nil {
			t.Errorf("%s is still held: %v", cidr, err)
			continue
		}
		_ = socket.Close()
	}
}

func BenchmarkStart(b *testing.B) {
	for name, opts := range map[string]Options{"API": {}, "API+ControllerManager": {ControllerManager: true}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cp, err := Start(b.Context(), opts)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := cp.Stop(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
