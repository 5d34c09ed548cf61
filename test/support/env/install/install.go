// Package install puts Sallyport on a local control plane as its users do, with Helm. Only that there are no nodes: a manager is a
// process of its own, with the arguments of the installed Deployment and as its ServiceAccount. There is either one, which listens
// on the address of the installed Service, or there are the pods of the Deployment, which a Kubelet runs.
package install

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// What the release is called, where it is, and how the API server calls its webhooks. The chart's own port is one that only root
// may listen on.
const (
	Release   = "sallyport"
	Namespace = "sallyport-system"
	Service   = "sallyport-webhook"
	Port      = 9443
)

// configuration is what both webhook configurations are called.
const configuration = "sallyport"

const patience = time.Minute

// Sallyport is an installed release.
type Sallyport struct {
	// Address is the Service's own: a loopback address.
	Address string

	plane      *env.ControlPlane
	clientset  kubernetes.Interface
	deployed   *deployed
	kubeconfig string // the ServiceAccount's
	dir        string // with the chart
	manager    *Manager
}

// Start installs Sallyport and returns when the API server has its requests judged by all policies of the release. Definitions that
// are there already become the release's.
func Start(ctx context.Context, cp *env.ControlPlane, o Options) (*Sallyport, error) {
	s, err := Prepare(ctx, cp, o.Values...)
	if err != nil {
		return nil, err
	}
	err = s.Resume(ctx, o)
	if err == nil {
		err = s.awaitPolicies(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Prepare installs the chart with those values, as for --set. No manager runs.
func Prepare(ctx context.Context, cp *env.ControlPlane, values ...string) (*Sallyport, error) {
	s, err := Unpack(cp)
	if err != nil {
		return nil, err
	}
	// A control plane whose controller manager is to collect garbage among our objects has had the definitions from its start.
	if err = s.Install(ctx, append(sets(values), "--take-ownership")...); err == nil {
		err = s.Adopt(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Unpack puts the chart into a folder and installs nothing.
func Unpack(cp *env.ControlPlane) (*Sallyport, error) {
	clientset, err := kubernetes.NewForConfig(cp.Config)
	if err != nil {
		return nil, err
	}
	s := &Sallyport{plane: cp, clientset: clientset}
	if s.dir, err = os.MkdirTemp("", "sallyport-"); err != nil {
		return nil, err
	}
	if err := os.CopyFS(s.dir, charts.Files); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the chart: %w", err), s.Remove())
	}
	return s, nil
}

// Chart is the folder of the chart.
func (s *Sallyport) Chart() string { return filepath.Join(s.dir, "sallyport") }

// Install runs helm install, with further arguments. Machines of runtimes that the chart disables are admitted: tests have managers of
// their own that know them.
func (s *Sallyport) Install(ctx context.Context, args ...string) error {
	return s.helm(ctx, append([]string{"install", Release, s.Chart(), "--create-namespace", "--set", fmt.Sprintf("webhook.service.port=%d,runtimes.denyDisabled=false", Port)}, args...)...)
}

// Upgrade runs helm upgrade, with further arguments. The values that were set before stay.
func (s *Sallyport) Upgrade(ctx context.Context, args ...string) error {
	if err := s.helm(ctx, append([]string{"upgrade", Release, s.Chart(), "--reuse-values"}, args...)...); err != nil {
		return err
	}
	return s.Adopt(ctx)
}

// Uninstall runs helm uninstall. Managers are to have been stopped.
func (s *Sallyport) Uninstall(ctx context.Context) error { return s.helm(ctx, "uninstall", Release) }

func (s *Sallyport) helm(ctx context.Context, args ...string) error {
	stdout, stderr, code := s.plane.Helm(ctx, append(args, "--namespace", Namespace)...)
	if code != 0 {
		return fmt.Errorf("helm %s: exit %d: %s%s", args[0], code, stdout, stderr)
	}
	return nil
}

func sets(values []string) (args []string) {
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// Adopt takes from an installed release what a manager needs, and returns when it can be started.
func (s *Sallyport) Adopt(ctx context.Context) error {
	service, err := s.clientset.CoreV1().Services(Namespace).Get(ctx, Service, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the installed Service: %w", err)
	}
	s.Address = service.Spec.ClusterIP
	if s.deployed, err = readDeployment(ctx, s.clientset, Namespace, Release); err != nil {
		return err
	}
	if s.kubeconfig, err = s.plane.ServiceAccountKubeconfig(ctx, Namespace, s.deployed.serviceAccount); err != nil {
		return err
	}
	if err := s.awaitKinds(ctx); err != nil {
		return err
	}
	return s.awaitRights(ctx)
}

// User is who a manager is to the API server.
func (s *Sallyport) User() string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", Namespace, s.deployed.serviceAccount)
}

// awaitKinds returns when the API server serves our kinds: a manager that starts before looks again only after 10 seconds.
func (s *Sallyport) awaitKinds(ctx context.Context) error {
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	return s.await(ctx, "our kinds to be served", func(context.Context) bool {
		served, err := s.clientset.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		if err != nil {
			return false
		}
		known := map[string]bool{}
		for _, r := range served.APIResources {
			known[r.Name] = true
		}
		for _, crd := range crds {
			if !known[crd.Spec.Names.Plural] {
				return false
			}
		}
		return true
	})
}

// awaitRights returns when the API server knows of the roles, which takes a moment, so that whatever is forbidden later is a fault.
func (s *Sallyport) awaitRights(ctx context.Context) error {
	return s.await(ctx, "the roles to be known", func(ctx context.Context) bool {
		return s.may(ctx, &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "regopolicies", Verb: "list"}) &&
			s.may(ctx, &authorizationv1.ResourceAttributes{Namespace: Namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "create"})
	})
}

func (s *Sallyport) may(ctx context.Context, what *authorizationv1.ResourceAttributes) bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: s.User(), ResourceAttributes: what}}
	review, err := s.clientset.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

func (s *Sallyport) await(ctx context.Context, what string, is func(context.Context) bool) error {
	err := step.Await(ctx, func(ctx context.Context) (bool, error) {
		return is(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// Resume starts the manager, also after Stop, and returns when the API server has requests judged by it.
func (s *Sallyport) Resume(ctx context.Context, o Options) (err error) {
	if s.manager, err = s.Manager(o, "sallyport-0", Ports{Webhook: Port, Metrics: 8080, Health: 8081}); err != nil {
		return err
	}
	if err := s.manager.AwaitReady(ctx); err != nil {
		return err
	}
	return s.AwaitJudgement(ctx)
}

// Metrics gives the manager's metrics as text.
func (s *Sallyport) Metrics(ctx context.Context) (string, error) { return s.manager.Metrics(ctx) }

// Webhooks is the address at which the manager serves the webhooks.
func (s *Sallyport) Webhooks() string { return s.manager.Webhooks() }

// Roots are the authorities that the API server trusts to certify the webhooks.
func (s *Sallyport) Roots(ctx context.Context) (*x509.CertPool, error) {
	c, err := s.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the installed webhook configuration: %w", err)
	}
	roots := x509.NewCertPool()
	for _, w := range c.Webhooks {
		if !roots.AppendCertsFromPEM(w.ClientConfig.CABundle) {
			return nil, fmt.Errorf("webhook %s has no caBundle", w.Name)
		}
	}
	return roots, nil
}

// AwaitJudgement returns when the API server has requests judged.
func (s *Sallyport) AwaitJudgement(ctx context.Context) error {
	c, err := client.New(s.plane.Config, client.Options{})
	if err != nil {
		return err
	}
	return s.await(ctx, "the API server to call the webhooks", func(ctx context.Context) bool { return judged(ctx, c) })
}

// awaitPolicies returns when each policy that the release ships decides.
func (s *Sallyport) awaitPolicies(ctx context.Context) error {
	c, err := Client(s.plane.Config)
	if err != nil {
		return err
	}
	shipped, err := s.clientset.CoreV1().ConfigMaps(Namespace).Get(ctx, "sallyport-policies", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the policies of the release: %w", err)
	}
	return s.await(ctx, "the policies of the release to decide", func(ctx context.Context) bool {
		for file := range shipped.Data {
			policy := &v1alpha1.RegoPolicy{}
			err := c.Get(ctx, client.ObjectKey{Name: strings.TrimSuffix(file, ".yaml")}, policy)
			if err != nil || !meta.IsStatusConditionTrue(policy.Status.Conditions, string(v1alpha1.ConditionActive)) {
				return false
			}
		}
		return true
	})
}

// judged tries, without leaving anything behind, an object that the mutating webhook changes and one that the validating
// webhook refuses.
func judged(ctx context.Context, c client.Client) bool {
	// One of these runtimes may be disabled, and its machines refused.
	runtimes := []map[string]any{{"kubevirt": map[string]any{}}, {"pod": map[string]any{"image": "example.com/probe"}}}
	if !slices.ContainsFunc(runtimes, func(runtime map[string]any) bool {
		machine := object("VirtualMachine", map[string]any{"runtime": runtime})
		return c.Create(ctx, machine, client.DryRunAll) == nil && len(machine.GetFinalizers()) > 0
	}) {
		return false
	}
	operation := object("VirtualMachineOperation", map[string]any{"type": "Start", "virtualMachineName": "sallyport-probe"})
	err := c.Create(ctx, operation, client.DryRunAll)
	return err != nil && strings.Contains(err.Error(), "denied the request")
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": "sallyport-probe", "namespace": metav1.NamespaceDefault},
	}}
}

// Stop ends the manager and returns when it has ended. The release stays.
func (s *Sallyport) Stop() error {
	if s.manager == nil {
		return nil
	}
	return s.manager.Stop()
}

// Kill ends the manager as the failure of its node does.
func (s *Sallyport) Kill() error { return s.manager.Kill() }

// Remove ends the manager and removes the chart's folder. What is installed in the cluster stays.
func (s *Sallyport) Remove() error {
	return errors.Join(s.Stop(), os.RemoveAll(s.dir))
}
