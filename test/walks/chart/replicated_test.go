package chart

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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env/install"
	testsite "sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// replicated is a local control plane with an installed Sallyport, whose two pods are processes.
type replicated struct {
	step.T
	*testsite.Site
}

// newReplicated installs the chart with values.
func newReplicated(t *testing.T, values ...string) *replicated {
	t.Helper()
	return replicate(t, nil, values...)
}

// replicate installs the chart with values. The managers get flags besides.
func replicate(t *testing.T, flags []string, values ...string) *replicated {
	t.Helper()
	s := &replicated{T: step.T{T: t}}
	s.Site = testsite.Start(t, testsite.Options{
		Values: values, Pods: true,
		// The chart has ten seconds for a shutdown; in one of them not everybody knows on a busy machine that a replica ends.
		Flags: slices.Concat(testsite.SoonFollowed(), []string{"--shutdown-delay", "3s"}, flags),
	})
	s.rolledOut()
	s.kubectl("wait rego/policies-self --for=create --timeout=3m") // replicas are ready before the leader has applied the policies
	s.kubectl("wait rego --all --for=condition=Ready --timeout=3m")
	return s
}

// onlyOwn are values without the shipped policies on kinds that are not Sallyport's.
func onlyOwn(t *testing.T) (values []string) {
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
			values = append(values, "policies."+p.Name+".enabled=false")
		}
	}
	return values
}

// step is a part of the whole, after which the next makes sense only if it went well.
func (s *replicated) step(name string, do func(*replicated)) {
	s.Helper()
	s.Step(name, func(t step.T) {
		inner := *s
		inner.T = t
		do(&inner)
	})
}

// try runs kubectl and gives what the user reads.
func (s *replicated) try(line string, more ...string) (text string, ok bool) {
	s.Helper()
	stdout, stderr, code := s.Plane.Kubectl(s.Context(), append(strings.Fields(line), more...)...)
	return stdout + stderr, code == 0
}

// kubectl is one with success.
func (s *replicated) kubectl(line string, more ...string) string {
	s.Helper()
	text, ok := s.try(line, more...)
	if !ok {
		s.Fatalf("kubectl %s %q: %s", line, more, text)
	}
	return text
}

// passes is a kubectl that must succeed.
func (s *replicated) passes(line string, more ...string) {
	s.Helper()
	if text, ok := s.try(line, more...); !ok {
		s.Errorf("kubectl %s %q: %s", line, more, text)
	}
}

// refused is a kubectl that must fail with these words.
func (s *replicated) refused(words, line string, more ...string) {
	s.Helper()
	if text, ok := s.try(line, more...); ok || !strings.Contains(text, words) {
		s.Errorf("kubectl %s %q: %s, want it refused with %q", line, more, text, words)
	}
}

// file writes a manifest for kubectl.
func (s *replicated) file(manifest string) string {
	s.Helper()
	f, err := os.CreateTemp(s.TempDir(), "*.yaml")
	s.Must(err)
	_, err = f.WriteString(manifest)
	s.Must(err)
	s.Must(f.Close())
	return f.Name()
}

// apply has kubectl apply manifests.
func (s *replicated) apply(manifests ...string) {
	s.Helper()
	s.kubectl("apply -f " + s.file(strings.Join(manifests, "\n---\n")))
}

// shows waits until a condition of a policy in its present generation has that status and reason, and gives its message.
func (s *replicated) shows(policy string, condition v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) (message string) {
	s.Helper()
	return shows(s.T, s.Client, policy, condition, status, reason)
}

func (s *replicated) registered(policies ...string) {
	s.Helper()
	for _, p := range policies {
		s.shows(p, v1alpha1.ConditionRegistered, metav1.ConditionTrue, v1alpha1.ReasonRegistered)
	}
}

// entries are the policies that the API server asks, by kind of webhook.
func (s *replicated) entries() (validating, mutating []string) {
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

func (s *replicated) configurations() (v *admissionregistrationv1.ValidatingWebhookConfiguration, m *admissionregistrationv1.MutatingWebhookConfiguration) {
	s.Helper()
	v, m = &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: configuration}, v))
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: configuration}, m))
	return v, m
}

// text is a configuration as far as it is to stay the same.
func (s *replicated) text() string {
	s.Helper()
	v, m := s.configurations()
	all, err := json.Marshal([]any{v.Webhooks, m.Webhooks})
	s.Must(err)
	return string(all)
}

// rolledOut returns when there are two replicas, and no others.
func (s *replicated) rolledOut() {
	s.Helper()
	s.kubectl("rollout status deployment/" + install.Release + " --timeout=3m --namespace " + install.Namespace)
	s.Until("nothing but two replicas is left", func() (string, bool) { return fmt.Sprint(s.pods()), len(s.pods()) == 2 })
}

// pods are the names of the replicas with how often each was restarted.
func (s *replicated) pods() (names []string) {
	s.Helper()
	pods := &corev1.PodList{}
	s.Must(s.Client.List(s.Context(), pods, client.InNamespace(install.Namespace)))
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
func (s *replicated) leader() (leader, other string) {
	s.Helper()
	holder := s.kubectl("get lease sallyport-manager -o jsonpath={.spec.holderIdentity} --namespace " + install.Namespace)
	for _, name := range s.Kubelet.Replicas() {
		if strings.HasPrefix(holder, name+"_") {
			leader = name
		} else {
			other = name
		}
	}
	return leader, other
}

// event waits for an event about a policy.
func (s *replicated) event(policy, reason, text string) {
	s.Helper()
	hasEvent(s.T, s.Client, "RegoPolicy", policy, reason, text)
}

// plugin runs kubectl sallyport.
func (s *replicated) plugin(args ...string) string {
	s.Helper()
	return s.run(filepath.Join(s.Dir, "kubectl-sallyport"), append(args, "--kubeconfig", s.Plane.Kubeconfig())...)
}

// run runs a program with success, and gives what it prints.
func (s *replicated) run(program string, args ...string) string {
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
