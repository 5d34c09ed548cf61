package editing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/step"
)

// stack is what all tests of this package share.
var stack struct {
	plane     *env.ControlPlane
	sallyport *install.Sallyport
	options   install.Options
	client    client.WithWatch
	logs      install.Log
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sallyport-editing-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = start(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err, install.Tail(stack.logs.String(), 20))
		return 1
	}
	code := m.Run()
	if err := errors.Join(stack.sallyport.Remove(), stack.plane.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(ctx context.Context, dir string) (err error) {
	stack.options = install.Options{Logs: &stack.logs}
	if stack.options.Binary, err = install.Build(ctx, dir, "sallyport.dev/sallyport/cmd/sallyport"); err != nil {
		return err
	}
	if stack.plane, err = env.Start(ctx, env.Options{}); err != nil {
		return err
	}
	if stack.client, err = install.Client(stack.plane.Config); err != nil {
		return err
	}
	if stack.sallyport, err = install.Start(ctx, stack.plane, stack.options); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"create", "clusterrolebinding", "bob-edits", "--clusterrole=sallyport-policy-editor", "--user=bob"},
	} {
		if out, errs, code := stack.plane.Kubectl(ctx, args...); code != 0 {
			return fmt.Errorf("kubectl %q: %s%s", args, out, errs)
		}
	}
	return nil
}

// person is somebody with kubectl.
type person struct {
	step.T
	name string // "" is the cluster's administrator
}

func admin(t *testing.T) person { return person{step.T{T: t}, ""} }

// bob may write policies, and nothing more.
func bob(t *testing.T) person { return person{step.T{T: t}, "bob"} }

type answer struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// try runs kubectl, again if a status was written between what it read and what it wrote, as a person would, and if a rehearsal did not
// finish, as on a machine that is busy with other tests.
func (p person) try(stdin string, args ...string) answer {
	p.Helper()
	for first := time.Now(); ; {
		a := p.once(stdin, args...)
		busy := strings.Contains(a.stderr, "its rehearsal did not finish within") && time.Since(first) < step.Patience
		if a.code == 0 || !busy && !strings.Contains(a.stderr, "the object has been modified") {
			return a
		}
	}
}

// once runs kubectl, for a policy whose rehearsal never finishes.
func (p person) once(stdin string, args ...string) answer {
	p.Helper()
	if p.name != "" {
		args = append([]string{"--as", p.name}, args...)
	}
	began := time.Now()
	stdout, stderr, code := stack.plane.KubectlAs(p.Context(), stack.plane.Kubeconfig(), strings.NewReader(stdin), args...)
	return answer{stdout, stderr, code, time.Since(began)}
}

// may is kubectl with success.
func (p person) may(stdin string, args ...string) answer {
	p.Helper()
	a := p.try(stdin, args...)
	if a.code != 0 {
		p.Fatalf("kubectl %s: exit %d: %s", strings.Join(args, " "), a.code, a.stderr)
	}
	return a
}

// refused is kubectl that must fail with all of the texts in what the person reads.
func (p person) refused(stdin string, args []string, texts ...string) answer {
	p.Helper()
	a := p.try(stdin, args...)
	p.denied(a, args, texts...)
	return a
}

// denied checks that kubectl failed with all of the texts in what the person reads.
func (p person) denied(a answer, args []string, texts ...string) {
	p.Helper()
	p.Logf("kubectl %s, %d ms:\n%s", strings.Join(args, " "), a.took.Milliseconds(), a.stderr)
	if a.code == 0 {
		p.Errorf("kubectl %s was admitted: %s", strings.Join(args, " "), a.stdout)
		return
	}
	for _, text := range texts {
		if !strings.Contains(a.stderr, text) {
			p.Errorf("kubectl %s: the person reads\n%s\nwithout %q", strings.Join(args, " "), a.stderr, text)
		}
	}
}

// noTime is a part of the warning of an edit that is admitted untested.
const noTime = "tests did not finish in time"

// attempts is how often an edit is tried that a busy webhook admits untested.
const attempts = 5

// refusedInTime is refused for an edit that fails the tests of other policies. On a busy machine the webhook may have no time for those tests.
// It then admits the edit with a warning, and the person puts the former content back and tries again. If there never is time, the edit
// that was admitted last stays for untested, which checks what becomes of it.
func (p person) refusedInTime(edit, before string, args []string, untested func(), texts ...string) {
	p.Helper()
	for range attempts {
		a := p.try(edit, args...)
		if a.code != 0 || !strings.Contains(a.stderr, noTime) {
			p.denied(a, args, texts...)
			return
		}
		p.may(before, args...)
	}
	if a := p.try(edit, args...); a.code != 0 || !strings.Contains(a.stderr, noTime) {
		p.denied(a, args, texts...)
		return
	}
	p.Logf("the machine is too busy for tests in the webhook")
	untested()
	p.may(before, args...)
}

// patch are the arguments that change a policy.
func patch(name, merge string) []string {
	return []string{"patch", "regopolicy", name, "--type=merge", "-p", merge}
}

// get reads a policy that is there, or will be in a moment.
func get(t *testing.T, name string) *v1alpha1.RegoPolicy {
	t.Helper()
	object := &v1alpha1.RegoPolicy{}
	err := step.Await(t.Context(), func(ctx context.Context) (bool, error) {
		err := stack.client.Get(ctx, client.ObjectKey{Name: name}, object)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("reading RegoPolicy %s: %v", name, err)
	}
	return object
}

// text gives what kubectl is given of an object.
func text(t *testing.T, object *v1alpha1.RegoPolicy) string {
	t.Helper()
	object = object.DeepCopy()
	object.ManagedFields, object.ResourceVersion, object.Status = nil, "", v1alpha1.RegoPolicyStatus{} // of whatever version there is
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RegoPolicy"))
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// edited is a stored policy with a text of its modules replaced by another.
func edited(t *testing.T, name, from, to string) string {
	t.Helper()
	object := get(t, name)
	if !strings.Contains(object.Spec.Modules[0].Source, from) {
		t.Fatalf("there is no %q in %s", from, name)
	}
	object.Spec.Modules[0].Source = strings.Replace(object.Spec.Modules[0].Source, from, to, 1)
	return text(t, object)
}

var replace = []string{"replace", "-f", "-"}

// shows waits until a condition of a policy's present generation has that reason, and gives its message.
func shows(t *testing.T, name string, condition v1alpha1.ConditionType, reason v1alpha1.ConditionReason) (message string) {
	t.Helper()
	last := "nothing"
	err := step.Await(t.Context(), func(context.Context) (bool, error) {
		object := get(t, name)
		c := meta.FindStatusCondition(object.Status.Conditions, string(condition))
		if c == nil {
			return false, nil
		}
		last, message = fmt.Sprintf("%+v", c), c.Message
		return c.ObservedGeneration == object.Generation && c.Reason == string(reason), nil
	})
	if err != nil {
		t.Fatalf("waiting until %s of %s is %s: %v; last seen: %s", condition, name, reason, err, last)
	}
	return message
}

// forget deletes a policy when the test is over.
func forget(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		stack.plane.Kubectl(context.Background(), "delete", "regopolicy", name, "--ignore-not-found")
	})
}

// copyOf makes a copy of the program, in a folder of its own.
func copyOf(t *testing.T, program string) string {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sallyport")
	if err := os.WriteFile(file, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}
