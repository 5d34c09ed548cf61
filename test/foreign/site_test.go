// Package foreign has policies of people's own on kinds that are not Sallyport's, with the chart, two replicas and kubectl: how they
// come to be enforced, what passes whatever happens, and that they go as they came.
package foreign

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/step"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// site is a local control plane with an installed Sallyport, whose pods are processes.
type site struct {
	step.T
	plane     *env.ControlPlane
	sallyport *install.Sallyport
	kubelet   *install.Kubelet
	client    client.WithWatch
	binary    string // sallyport
	bin       string // with the plugin of kubectl
	logs      *install.Log
	audit     string // the file of the API server's audit log
}

// newSite installs the chart, with further arguments of helm install.
func newSite(t *testing.T, args ...string) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: left out with -short")
	}
	s := &site{T: step.T{T: t}, bin: t.TempDir(), logs: &install.Log{}, audit: filepath.Join(t.TempDir(), "audit.log")}
	var err error
	s.binary, err = install.Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/sallyport")
	s.Must(err)
	s.Must(install.Plugin(s.bin, s.binary))
	s.plane, err = env.Start(t.Context(), env.Options{
		ControllerManager: true, ControllerManagerFlags: install.ControllerManagerFlags(), AuditLog: s.audit,
	})
	s.Must(err)
	s.client, err = install.Client(s.plane.Config)
	s.Must(err)
	s.sallyport, err = install.Unpack(s.plane)
	s.Must(err)
	t.Cleanup(func() {
		if s.kubelet != nil {
			if err := s.kubelet.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.sallyport.Remove(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of what the managers logged:\n%s", install.Tail(s.logs.String(), 100))
		}
	})
	s.Must(s.sallyport.Install(t.Context(), args...))
	s.Must(s.sallyport.Adopt(t.Context()))
	s.kubelet, err = s.sallyport.NewKubelet(t.Context(), install.Options{
		Binary: s.binary, Logs: s.logs,
		Flags: []string{
			// The chart has ten seconds; in one of them not everybody knows on a busy machine that a replica ends.
			"--decision-records", "off", "--shutdown-delay", "3s",
			// A leader that is killed is soon followed.
			"--lease-duration", "3s", "--renew-deadline", "2s", "--runtime-call-timeout", "1s", "--retry-period", "300ms",
		},
	})
	s.Must(err)
	s.rolledOut()
	s.kubectl("wait rego/policies-self --for=create --timeout=3m") // replicas are ready before the leader has applied the policies
	s.kubectl("wait rego --all --for=condition=Ready --timeout=3m")
	return s
}

// onlyOwn are arguments of helm install without the shipped policies on kinds that are not Sallyport's.
func onlyOwn(t *testing.T) (args []string) {
	t.Helper()
	const folder = "sallyport/files/policies"
	files, err := charts.Files.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		p := &v1alpha1.RegoPolicy{}
		text, err := charts.Files.ReadFile(path.Join(folder, f.Name()))
		if err == nil {
			err = yaml.Unmarshal(text, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.Match != nil && slices.ContainsFunc(p.Spec.Match.Resources, func(r v1alpha1.PolicyResources) bool {
			return !slices.Equal(r.APIGroups, []string{v1alpha1.GroupName})
		}) {
			args = append(args, "--set", "policies."+p.Name+".enabled=false")
		}
	}
	return args
}

// step is a part of the whole, after which the next makes sense only if it went well.
func (s *site) step(name string, do func(*site)) {
	s.Helper()
	s.Step(name, func(t step.T) {
		inner := *s
		inner.T = t
		do(&inner)
	})
}

// try runs kubectl and gives what the user reads.
func (s *site) try(line string, more ...string) (text string, ok bool) {
	s.Helper()
	stdout, stderr, code := s.plane.Kubectl(s.Context(), append(strings.Fields(line), more...)...)
	return stdout + stderr, code == 0
}

// kubectl is one with success.
func (s *site) kubectl(line string, more ...string) string {
	s.Helper()
	text, ok := s.try(line, more...)
	if !ok {
		s.Fatalf("kubectl %s %q: %s", line, more, text)
	}
	return text
}

// passes is a kubectl that must succeed.
func (s *site) passes(line string, more ...string) {
	s.Helper()
	if text, ok := s.try(line, more...); !ok {
		s.Errorf("kubectl %s %q: %s", line, more, text)
	}
}

// refused is a kubectl that must fail with these words.
func (s *site) refused(words, line string, more ...string) {
	s.Helper()
	if text, ok := s.try(line, more...); ok || !strings.Contains(text, words) {
		s.Errorf("kubectl %s %q: %s, want it refused with %q", line, more, text, words)
	}
}

// file writes a manifest for kubectl.
func (s *site) file(manifest string) string {
	s.Helper()
	f, err := os.CreateTemp(s.TempDir(), "*.yaml")
	s.Must(err)
	_, err = f.WriteString(manifest)
	s.Must(err)
	s.Must(f.Close())
	return f.Name()
}

// apply has kubectl apply manifests.
func (s *site) apply(manifests ...string) {
	s.Helper()
	s.kubectl("apply -f " + s.file(strings.Join(manifests, "\n---\n")))
}

// shows waits until a condition of a policy in its present generation has that status and reason, and gives its message.
func (s *site) shows(policy string, condition v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) (message string) {
	s.Helper()
	s.Until(fmt.Sprintf("condition %s of %s is %s, %s", condition, policy, status, reason), func() (string, bool) {
		object := &v1alpha1.RegoPolicy{}
		if err := s.client.Get(s.Context(), client.ObjectKey{Name: policy}, object); err != nil {
			return err.Error(), false
		}
		c := meta.FindStatusCondition(object.Status.Conditions, string(condition))
		if c == nil {
			return fmt.Sprintf("%+v", object.Status.Conditions), false
		}
		message = c.Message
		return fmt.Sprintf("%+v of generation %d", c, object.Generation),
			c.ObservedGeneration == object.Generation && c.Status == status && c.Reason == string(reason)
	})
	return message
}

func (s *site) registered(policies ...string) {
	s.Helper()
	for _, p := range policies {
		s.shows(p, v1alpha1.ConditionRegistered, metav1.ConditionTrue, v1alpha1.ReasonRegistered)
	}
}

// entries are the policies that the API server asks, by kind of webhook.
func (s *site) entries() (validating, mutating []string) {
	s.Helper()
	v, m := s.configurations()
	for _, w := range v.Webhooks {
		validating = append(validating, strings.TrimSuffix(w.Name, ".policies.sallyport.dev"))
	}
	for _, w := range m.Webhooks {
		mutating = append(mutating, strings.TrimSuffix(w.Name, ".policies.sallyport.dev"))
	}
	return validating, mutating
}

const configuration = "sallyport-policies"

func (s *site) configurations() (v *admissionregistrationv1.ValidatingWebhookConfiguration, m *admissionregistrationv1.MutatingWebhookConfiguration) {
	s.Helper()
	v, m = &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Must(s.client.Get(s.Context(), client.ObjectKey{Name: configuration}, v))
	s.Must(s.client.Get(s.Context(), client.ObjectKey{Name: configuration}, m))
	return v, m
}

// text is a configuration as far as it is to stay the same.
func (s *site) text() string {
	s.Helper()
	v, m := s.configurations()
	all, err := json.Marshal([]any{v.Webhooks, m.Webhooks})
	s.Must(err)
	return string(all)
}

// rolledOut returns when there are two replicas, and no others.
func (s *site) rolledOut() {
	s.Helper()
	s.kubectl("rollout status deployment/" + install.Release + " --timeout=3m --namespace " + install.Namespace)
	s.Until("nothing but two replicas is left", func() (string, bool) { return fmt.Sprint(s.pods()), len(s.pods()) == 2 })
}

// pods are the names of the replicas with how often each was restarted.
func (s *site) pods() (names []string) {
	s.Helper()
	pods := &corev1.PodList{}
	s.Must(s.client.List(s.Context(), pods, client.InNamespace(install.Namespace)))
	for _, p := range pods.Items {
		restarts := int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		names = append(names, fmt.Sprintf("%s restarted %d times", p.Name, restarts))
	}
	slices.Sort(names)
	return names
}

// leader is the pod of the one that leads, other that of the other one.
func (s *site) leader() (leader, other string) {
	s.Helper()
	holder := s.kubectl("get lease sallyport-manager -o jsonpath={.spec.holderIdentity} --namespace " + install.Namespace)
	for _, name := range s.kubelet.Replicas() {
		if strings.HasPrefix(holder, name+"_") {
			leader = name
		} else {
			other = name
		}
	}
	return leader, other
}

// event waits for an event about a policy.
func (s *site) event(policy, reason, text string) {
	s.Helper()
	s.Until(fmt.Sprintf("there is an event %s about %s with %q", reason, policy, text), func() (string, bool) {
		list := &eventsv1.EventList{}
		s.Must(s.client.List(s.Context(), list))
		var others []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "RegoPolicy" && e.Regarding.Name == policy && e.Reason == reason {
				if strings.Contains(e.Note, text) {
					return "", true
				}
				others = append(others, e.Note)
			}
		}
		return strings.Join(others, "; "), false
	})
}

// plugin runs kubectl sallyport.
func (s *site) plugin(args ...string) string {
	s.Helper()
	return s.run(filepath.Join(s.bin, "kubectl-sallyport"), append(args, "--kubeconfig", s.plane.Kubeconfig())...)
}

// run runs a program with success, and gives what it prints.
func (s *site) run(program string, args ...string) string {
	s.Helper()
	command := exec.CommandContext(s.Context(), program, args...)
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		s.Fatalf("%s %q: %v: %s%s", filepath.Base(program), args, err, stdout, stderr.String())
	}
	return string(stdout)
}
