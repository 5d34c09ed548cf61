package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// unasked fails the test if a fact is not answered from the pass, but for other machines that are being moved, of which there are none.
type unasked struct{ t *testing.T }

func (u unasked) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return u }

func (u unasked) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if q.Fields["status.phase"] == string(v1alpha1.VirtualMachineMigrating) {
		return engine.Answer{Value: engine.List(nil), Live: true}, nil
	}
	u.t.Errorf("asked beyond what the pass has read: %+v", q)
	return engine.Answer{}, errors.New("not here")
}

// sallyportUser is the user of requests that Sallyport makes itself.
const sallyportUser = "system:sallyport"

// unstructuredOf is an object of Sallyport's kinds as the API server returns it.
func unstructuredOf(object runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOf(object).Name))
	return u, err
}

// creationOf is the request with which its requester creates an operation.
func creationOf(t *testing.T, operation *v1alpha1.VirtualMachineOperation) *decision.Review {
	t.Helper()
	object, err := unstructuredOf(operation)
	if err != nil {
		t.Fatal(err)
	}
	kind := v1alpha1.KindOf(operation)
	review, err := decision.NewReview(&admissionv1.AdmissionRequest{
		UID: "r-1", Operation: admissionv1.Create, Namespace: operation.Namespace, Name: operation.Name,
		Kind:     metav1.GroupVersionKind(object.GroupVersionKind()),
		Resource: metav1.GroupVersionResource(v1alpha1.GroupVersion.WithResource(kind.Resource())),
		UserInfo: authenticationv1.UserInfo{Username: operation.Spec.RequestedBy.Username}, Object: runtime.RawExtension{Object: object},
	})
	if err != nil {
		t.Fatal(err)
	}
	return review
}

func svmop(name string, kind v1alpha1.OperationType, force bool) v1alpha1.VirtualMachineOperation {
	return v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: kind, Force: force, VirtualMachineName: "web-1", RequestedBy: &v1alpha1.Requester{Username: "ann"},
			RequestedAt: "2026-11-20T09:59:00.000000001Z",
		},
	}
}

func svm(phase v1alpha1.VirtualMachinePhase, change ...func(*v1alpha1.VirtualMachineStatus)) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "ns", UID: "uid-vm"},
		Spec:       v1alpha1.VirtualMachineSpec{RunPolicy: v1alpha1.RunPolicyManual},
		Status:     v1alpha1.VirtualMachineStatus{Phase: phase},
	}
	for _, c := range change {
		c(&vm.Status)
	}
	return vm
}

func holds(origin v1alpha1.ClaimOrigin, kind v1alpha1.OperationType) func(*v1alpha1.VirtualMachineStatus) {
	return func(s *v1alpha1.VirtualMachineStatus) {
		s.ActiveOperation = &v1alpha1.ActiveOperation{ID: "claim-1", Origin: origin, Type: kind}
	}
}

// The same policies that admitted an operation say, at the moment of its claim, whether it may and whose place it takes. Who yields to whom is
// tested beside the policy.
func TestArbitrateAsksTheShippedPolicies(t *testing.T) {
	start, stop := svmop("start", v1alpha1.OperationStart, false), svmop("stop", v1alpha1.OperationStop, false)
	finished := svmop("done", v1alpha1.OperationStop, true)
	finished.Status.Phase = v1alpha1.OperationCompleted
	for name, tc := range map[string]struct {
		operation  v1alpha1.VirtualMachineOperation
		machine    *v1alpha1.VirtualMachine
		unfinished []v1alpha1.VirtualMachineOperation
		want       decision.Admission
	}{
		"an idle machine":                 {start, svm("Stopped"), nil, decision.Admission{}},
		"a Start that yields":             {stop, svm("Starting"), []v1alpha1.VirtualMachineOperation{start}, decision.Admission{Supersedes: []string{"start"}}},
		"itself does not count":           {stop, svm("Running"), []v1alpha1.VirtualMachineOperation{stop}, decision.Admission{}},
		"what is finished does not count": {start, svm("Stopped"), []v1alpha1.VirtualMachineOperation{finished}, decision.Admission{}},
		"the run policy that yields":      {stop, svm("Starting", holds("RunPolicy", "Start")), nil, decision.Admission{SupersedesOrigins: []string{"RunPolicy"}}},
		"a deletion yields to nothing":    {stop, svm("Running", holds("Deletion", "Delete")), nil, decision.Admission{Denied: true, Reason: "OperationInProgress"}},
		"the machine is gone":             {stop, nil, nil, decision.Admission{Denied: true, Reason: "VirtualMachineNotFound"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newShippedFixture(t, world{})
			f.facts = unasked{t}
			got, err := f.Arbitrate(t.Context(), &tc.operation, tc.machine, tc.unfinished)
			if err != nil {
				t.Fatal(err)
			}
			if got.Denied && !strings.Contains(got.Message, "/"+got.Reason+"] ") {
				t.Errorf("the message does not say who denies: %q", got.Message)
			}
			got.Message = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if record := f.only(t); record.Endpoint != decision.Arbitrating || record.Allowed == tc.want.Denied {
				t.Errorf("got record of %s, allowed %v", record.Endpoint, record.Allowed)
			}
		})
	}
}

// Who asked is who asked then, whoever runs the reconciler; everything but the machine is read live.
func TestArbitrateAsksForTheRequester(t *testing.T) {
	onOperations := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.Resources[0] = v1alpha1.PolicyResources{
			APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachineoperations"},
			Operations: []v1alpha1.MatchOperation{"CREATE"},
		}
	}
	rule := fmt.Sprintf(denyMetadata, "NotAnn") + `deny contains {"reason": "NotAnn", "message": $"{input.request.userInfo.username} is not ann"} if not _ann

_ann if {
	input.request.userInfo.username == "ann"
	input.request.userInfo.extra["example.com/team"] == ["blue"]
}
` +
		"\n\nfacts.secrets := {\"apiVersion\": \"v1\", \"kind\": \"Service\", \"namespace\": \"ns\"}\n"
	ann, bob := svmop("a", v1alpha1.OperationStop, false), svmop("b", v1alpha1.OperationStop, false)
	team := map[string]v1alpha1.ExtraValue{"example.com/team": {"blue"}}
	ann.Spec.RequestedBy.Extra, bob.Spec.RequestedBy.Extra = team, team
	bob.Spec.RequestedBy.Username = "bob"
	f := newFixture(t, world{answer: []any{}}, policyOf("p", rule, onOperations))
	for _, tc := range []struct {
		operation v1alpha1.VirtualMachineOperation
		denied    bool
	}{{ann, false}, {bob, true}} {
		if got, err := f.Arbitrate(t.Context(), &tc.operation, svm("Running"), nil); err != nil || got.Denied != tc.denied {
			t.Errorf("%s: got %+v, %v", tc.operation.Name, got, err)
		}
	}
	f = newFixture(t, world{err: errors.New("gone")}, policyOf("p", rule, onOperations))
	if got, err := f.Arbitrate(t.Context(), &ann, svm("Running"), nil); err == nil || got.Denied {
		t.Errorf("a fact that cannot be read gave %+v, %v and not an error", got, err)
	}
}

// What Warn and Audit mode say refuses nothing here either.
func TestArbitrateFollowsModes(t *testing.T) {
	shipped := shipped.Policies(t)
	i := slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "operations-applicability" })
	shipped[i].Spec.Mode = v1alpha1.ModeAudit
	f := newShippedFixture(t, world{}, shipped...)
	f.facts = unasked{t}
	migrate := svmop("move", v1alpha1.OperationMigrate, false)
	if got, err := f.Arbitrate(t.Context(), &migrate, svm("Stopped"), nil); err != nil || got.Denied {
		t.Errorf("got %+v, %v", got, err)
	}
}
