package review

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/test/support/step"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/server"
)

func TestMain(m *testing.M) { install.Main(m) }

// cluster is an API server that asks the policies.
type cluster struct {
	client.WithWatch
	config   *rest.Config
	set      *catalog.Set
	objects  []v1alpha1.RegoPolicy // that the set was made of
	recorder *record.Recorder
	records  bytes.Buffer // to be read when the recorder is closed
}

// newCluster has the API server ask the policies, which are the shipped ones and those of this package.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane := env.Shared(t)
	c := &cluster{config: plane.Config}
	c.set, c.objects = policySet(t)
	var err error
	if c.WithWatch, err = install.Client(plane.Config); err != nil {
		t.Fatal(err)
	}
	c.recorder = record.NewRecorder(prometheus.NewRegistry(), &c.records, false)
	mux := http.NewServeMux()
	store := facts.NewStore(nil, c.WithWatch)
	store.RunTestsWith(testRunner(t)(c.stored))
	server.Register(decision.NewDecider(c.set, store, c.recorder, time.Now), prometheus.NewRegistry(), mux.Handle, logr.Discard())
	served := httptest.NewTLSServer(mux)
	t.Cleanup(served.Close)
	c.register(t, served)
	c.grant(t)
	c.awaitWebhooks(t)
	return c
}

func policySet(t *testing.T) (*catalog.Set, []v1alpha1.RegoPolicy) {
	t.Helper()
	objects := shipped.Default(t) // the leader registers the others, which is not here
	objects = append(objects, ownPolicies(t)...)
	for i := range objects {
		objects[i].Spec.TimeoutMilliseconds = 60_000 // nothing here is about time
	}
	set, err := catalog.Compile(objects)
	if err != nil {
		t.Fatal(err)
	}
	return set, objects
}

// register applies the configurations of the chart, for webhooks at a server of this process.
func (c *cluster) register(t *testing.T, server *httptest.Server) {
	t.Helper()
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		t.Fatal(err)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	reach := func(to *admissionregistrationv1.WebhookClientConfig, seconds **int32) {
		url, patience := server.URL+*to.Service.Path, int32(30)
		*to = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}
		*seconds = &patience
	}
	for i := range mutating.Webhooks {
		reach(&mutating.Webhooks[i].ClientConfig, &mutating.Webhooks[i].TimeoutSeconds)
	}
	for i := range validating.Webhooks {
		reach(&validating.Webhooks[i].ClientConfig, &validating.Webhooks[i].TimeoutSeconds)
	}
	c.make(t, mutating)
	c.make(t, validating)
}

func (c *cluster) make(t *testing.T, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

// grant lets everybody do everything to our kinds, and the group overriders more.
func (c *cluster) grant(t *testing.T) {
	t.Helper()
	for group, rule := range map[string]rbacv1.PolicyRule{
		"system:authenticated": {APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		"overriders":           {APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"regopolicies"}, Verbs: []string{"override"}},
	} {
		name := "review-" + group
		c.make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
		c.make(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
		})
	}
}

// awaitWebhooks returns when the API server asks both webhooks.
func (c *cluster) awaitWebhooks(t *testing.T) {
	t.Helper()
	err := step.Await(t.Context(), func(ctx context.Context) (bool, error) {
		machine := object("VirtualMachine", "probe", map[string]any{"runtime": map[string]any{"pod": map[string]any{}}})
		if err := c.Create(ctx, machine, client.DryRunAll); err != nil || len(machine.GetFinalizers()) == 0 {
			return false, nil
		}
		operation := object("VirtualMachineOperation", "probe", map[string]any{"type": "Start", "virtualMachineName": "probe"})
		err := c.Create(ctx, operation, client.DryRunAll)
		return err != nil && apierrors.ReasonForError(err) == "VirtualMachineNotFound", nil
	})
	if err != nil {
		t.Fatalf("waiting for the API server to ask the webhooks: %v", err)
	}
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault},
	}}
}

// kinds are those whose objects are the world of the requests.
var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"},
	v1alpha1.GroupVersion.WithKind("VirtualMachine"), v1alpha1.GroupVersion.WithKind("VirtualMachineOperation"),
	v1alpha1.GroupVersion.WithKind("VirtualMachinePool"),
	v1alpha1.GroupVersion.WithKind("VSphereServer"), v1alpha1.GroupVersion.WithKind("RegoPolicy"),
}

// dump gives all objects as kubectl get -o json shows them.
func (c *cluster) dump(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Object)
		}
	}
	return all
}

// may is a SubjectAccessReview with the answer.
func (c *cluster) may(t *testing.T, who user, what *authorizationv1.ResourceAttributes) map[string]any {
	t.Helper()
	info := who.info()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: info.Username, UID: info.UID, Groups: info.Groups, ResourceAttributes: what,
	}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"}
	asked, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

// answer is what a client gets.
type answer struct {
	Status   *metav1.Status // nil if the request was admitted
	Warnings []string
	Object   map[string]any
}

var methods = map[admissionv1.Operation]string{
	admissionv1.Create: http.MethodPost, admissionv1.Update: http.MethodPut, admissionv1.Delete: http.MethodDelete,
}

// send makes a request as its user.
func (c *cluster) send(t *testing.T, r request) answer {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: r.user.name, UID: r.user.uid, Groups: r.user.groups, Extra: r.user.extra}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := http.NewRequestWithContext(t.Context(), methods[r.operation], strings.TrimSuffix(config.Host, "/")+r.path(), bytes.NewReader(r.body(t)))
	if err != nil {
		t.Fatal(err)
	}
	sent.Header.Set("Content-Type", "application/json")
	response, err := httpClient.Do(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got answer
	warnings, errs := utilnet.ParseWarningHeaders(response.Header["Warning"])
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, w := range warnings {
		got.Warnings = append(got.Warnings, w.Text)
	}
	var into any = &got.Object
	if response.StatusCode >= http.StatusBadRequest {
		got.Status = &metav1.Status{}
		into = got.Status
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	if got.Status != nil && int(got.Status.Code) != response.StatusCode {
		t.Errorf("HTTP %d has a status with code %d", response.StatusCode, got.Status.Code)
	}
	return got
}
