package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// The namespaces of the walk: one may use the vCenter, the other may not.
const team, strangers = "team-walk", "team-strangers"

// policy is the one that is edited.
const policy = "operations-supersede"

// walk is what its steps share.
type walk struct {
	step.T
	site   site
	client client.WithWatch
	bin    string // with kubectl-sallyport, for PATH
	load   *install.Load
	// whole is the context of the whole walk, not of a step.
	whole context.Context
	// usual is what may be answered to the questions of the load, as things are.
	usual install.Answers
	// marked is that a policy was shown as one that nobody decides by.
	marked *atomic.Bool
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{T: step.T{T: t}, site: newSite(t), bin: t.TempDir(), whole: t.Context(), marked: &atomic.Bool{}}
	binary, err := install.Build(t.Context(), w.bin, "sallyport.dev/sallyport/cmd/sallyport")
	w.Must(err)
	if err = install.Plugin(w.bin, binary); err == nil {
		w.client, err = install.Client(w.site.config())
	}
	w.Must(err)
	return w
}

// step is a part of the walk, after which the next makes sense only if it went well.
func (w *walk) step(name string, do func(*walk)) {
	w.Helper()
	w.Step(name, func(t step.T) {
		inner := *w
		inner.T = t
		do(&inner)
		w.load, w.usual = inner.load, inner.usual
	})
}

// variables are the environment of kubectl and helm: nothing of the user's own, and the plugin where kubectl finds it.
func (w *walk) variables(more ...string) []string {
	_, _, kubeconfig := w.site.tools()
	return append([]string{
		"KUBECONFIG=" + kubeconfig, "KUBERC=off", "KUBECACHEDIR=" + filepath.Join(w.bin, "cache"), "HELM_CACHE_HOME=" + w.bin,
		"HELM_CONFIG_HOME=" + w.bin, "HELM_DATA_HOME=" + w.bin, "PATH=" + w.bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	}, more...)
}

func (w *walk) try(stdin string, args ...string) result {
	w.Helper()
	return w.patiently(stdin, w.variables(), args...)
}

// busy is how the write of a policy is refused where there is no time to try it first. Whoever reads that makes it again.
var busy = regexp.MustCompile(`\[policies-self/(LimitExceeded|DeadlineExceeded)\]`)

func (w *walk) patiently(stdin string, variables []string, args ...string) (r result) {
	w.Helper()
	kubectl, _, _ := w.site.tools()
	w.Until("there is time to try a policy", func() (string, bool) {
		r = execute(w.Context(), kubectl, stdin, variables, args...)
		return r.stderr, r.code == 0 || !busy.MatchString(r.stderr)
	})
	return r
}

// kubectl is one with success, and gives what it prints.
func (w *walk) kubectl(line string, more ...string) string {
	w.Helper()
	r := w.try("", append(strings.Fields(line), more...)...)
	if r.code != 0 {
		w.Fatalf("kubectl %s %q: exit %d: %s%s", line, more, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// document begins what could be taken for JSON, as kubectl before 1.37 does with all that begins with a brace.
const document = "---\n"

// create has kubectl create what a manifest says.
func (w *walk) create(manifest string) {
	w.Helper()
	if r := w.try(manifest, "create", "-f", "-"); r.code != 0 {
		w.Fatalf("kubectl create: %s for\n%s", r.stderr, manifest)
	}
}

// refused is a kubectl that must fail with all of the texts in what a user reads.
func (w *walk) refused(line string, texts ...string) {
	w.Helper()
	r := w.try("", strings.Fields(line)...)
	w.reads("kubectl "+line, r, texts...)
	if r.code == 0 {
		w.Errorf("kubectl %s succeeded: %s", line, r.stdout)
	}
}

func (w *walk) reads(what string, r result, texts ...string) {
	w.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			w.Errorf("%s: the user reads\n%s%s\nwithout %q", what, r.stdout, r.stderr, text)
		}
	}
}

// helm runs it for the release.
func (w *walk) helm(args ...string) result {
	w.Helper()
	_, helm, _ := w.site.tools()
	return execute(w.Context(), helm, "", w.variables(), args...)
}

func (w *walk) mustHelm(args ...string) {
	w.Helper()
	if r := w.helm(args...); r.code != 0 {
		w.Fatalf("helm %q: exit %d: %s%s", args, r.code, r.stdout, r.stderr)
	}
}

func (w *walk) install(args ...string) {
	w.Helper()
	args = append([]string{"install", release, w.site.chart(), "--namespace", namespace, "--create-namespace", "--set", "runtimes.denyDisabled=false"}, args...)
	for _, s := range w.site.settings() {
		args = append(args, "--set", s)
	}
	w.mustHelm(args...)
	w.site.installed(w.T.T)
	w.rolledOut()
}

// upgrade sets values beside those that were set before.
func (w *walk) upgrade(settings ...string) {
	w.Helper()
	args := []string{"upgrade", release, w.site.chart(), "--namespace", namespace, "--reuse-values"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	w.mustHelm(append(args, "--wait", "--timeout", step.Patience.String())...)
	w.rolledOut()
}

// rolledOut returns when all replicas are as the Deployment wants them.
func (w *walk) rolledOut() {
	w.Helper()
	w.kubectl("rollout status deployment/" + release + " --timeout=3m --namespace " + namespace)
	w.Until("nothing but two replicas is left", func() (string, bool) {
		pods := &corev1.PodList{}
		w.Must(w.client.List(w.Context(), pods, client.InNamespace(namespace)))
		names := make([]string, 0, len(pods.Items))
		for _, p := range pods.Items {
			names = append(names, fmt.Sprintf("%s (%v)", p.Name, p.DeletionTimestamp))
		}
		return strings.Join(names, ", "), len(names) == 2
	})
}

// pods are the names of the replicas, the leader first.
func (w *walk) pods() []string {
	w.Helper()
	names := strings.Fields(w.kubectl("get pods -o jsonpath={.items[*].metadata.name} --namespace " + namespace))
	leader := w.kubectl("get lease sallyport-manager -o jsonpath={.spec.holderIdentity} --namespace " + namespace)
	slices.SortFunc(names, func(a, b string) int {
		if strings.HasPrefix(leader, a+"_") {
			return -1
		}
		return strings.Compare(a, b)
	})
	return names
}

// rego gives the edited policy as it is in the cluster.
func (w *walk) rego() *v1alpha1.RegoPolicy {
	w.Helper()
	object := &v1alpha1.RegoPolicy{}
	w.Must(w.client.Get(w.Context(), client.ObjectKey{Name: policy}, object))
	return object
}

// shows waits until a condition of the policy in its present generation has that status and reason, and gives its message.
func (w *walk) shows(condition v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) (message string) {
	w.Helper()
	return shows(w.T, w.client, policy, condition, status, reason)
}

// questions are those of the load.
func (w *walk) questions() []install.Question {
	return []install.Question{
		{Name: secondStop, Object: func() *unstructured.Unstructured { return operation(false) }},
		{Name: forcedStop, Object: func() *unstructured.Unstructured { return operation(true) }},
		{Name: machine, Object: func() *unstructured.Unstructured { return adopted(team) }, Changed: hasFinalizer},
		{Name: stranger, Object: func() *unstructured.Unstructured { return adopted(strangers) }},
	}
}

// The questions of the load.
const (
	secondStop = "a Stop of a machine that is being stopped"
	forcedStop = "a forced Stop of a machine that is being stopped"
	machine    = "a machine of a team that may use the vCenter"
	stranger   = "a machine of a team that may not"
)

func hasFinalizer(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) > 0 }

// operation is another Stop of the machine that is being stopped.
func operation(force bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "VirtualMachineOperation",
		"metadata": map[string]any{"generateName": "load-", "namespace": team},
		"spec":     map[string]any{"type": "Stop", "force": force, "virtualMachineName": "web-1"},
	}}
}

// adopted is a machine that a team would like to have.
func adopted(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "VirtualMachine",
		"metadata": map[string]any{"generateName": "load-", "namespace": namespace},
		"spec": map[string]any{"runPolicy": "Manual", "runtime": map[string]any{"vsphere": map[string]any{
			"serverRef": map[string]any{"name": "walk"}, "inventoryPath": "/DC0/vm/load",
		}}},
	}}
}

// check reports replies that are not as they may be, and requests that were lost.
func (w *walk) check(during string, may install.Answers, replies []install.Reply) {
	w.Helper()
	if err := may.Check(replies); err != nil {
		w.Errorf("during %s: %v", during, err)
	}
}

// more waits for a few replies more to each question.
func (w *walk) more(few int) []install.Reply {
	w.Helper()
	replies, err := w.load.More(w.Context(), few)
	w.Must(err)
	return replies
}

// lasting checks that for a while nothing is answered but what may be.
func (w *walk) lasting(during string, may install.Answers) {
	w.Helper()
	w.check(during, may, w.more(10))
}

// throughout does something under the load, and checks that meanwhile and just after it nothing else is answered.
func (w *walk) throughout(during string, may install.Answers, do func()) {
	w.Helper()
	mark := w.load.Now()
	do()
	w.more(3)
	replies := w.load.Since(mark, time.Time{})
	w.check(during, may, replies)
	w.Logf("%s: %d requests, none lost", during, len(replies))
}

// ask has one replica decide about a second Stop, past the API server.
func (w *walk) ask(ctx context.Context, pod string) (string, error) {
	review, err := install.Creation(operation(false), "walker")
	if err != nil {
		return "", err
	}
	answer, err := w.site.ask(ctx, pod, review)
	if err != nil {
		return "", err
	}
	return install.Answered(answer), nil
}
