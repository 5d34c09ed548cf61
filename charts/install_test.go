package charts_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// maxRelease leaves room for modules that people put into their values.
const maxRelease = 352 << 10

// cluster is the shared control plane, with Helm and a client.
type cluster struct {
	client.Client
	cp *env.ControlPlane
}

// newCluster gives it. What a test has installed is removed at its end, but for the definitions.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	cp := env.Shared(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	own, err := client.New(cp.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{own, cp}
	t.Cleanup(func() { c.clean(context.Background(), t) })
	return c
}

// ours is the label of all that the chart makes.
const ours = "app.kubernetes.io/part-of=sallyport"

// clean removes everything that is of Sallyport but its definitions, which stay as after any removal and would take the API server
// longest.
func (c *cluster) clean(ctx context.Context, t *testing.T) {
	t.Helper()
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &crds, client.MatchingLabels{"app.kubernetes.io/part-of": "sallyport"}); err != nil {
		t.Error(err)
	}
	var kinds []string
	for i := range crds.Items {
		kinds = append(kinds, crds.Items[i].Name)
	}
	// The webhook configurations first: no manager runs, so they would fail the other deletions.
	c.delete(ctx, t, "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings", "-l", ours)
	if len(kinds) > 0 {
		c.delete(ctx, t, strings.Join(kinds, ","), "--all", "-A")
	}
	c.delete(ctx, t, "clusterroles,clusterrolebindings,deployments,configmaps,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies",
		"-A", "-l", ours)
	c.delete(ctx, t, "secrets", "-A", "-l", "owner=helm")
}

// forget removes the definitions, too, after a test that has changed them. Objects go before their definitions: with some still there,
// the removal of a definition that was changed shortly before can take the API server minutes.
func (c *cluster) forget(t *testing.T) {
	t.Cleanup(func() {
		ctx := context.Background()
		c.clean(ctx, t)
		c.delete(ctx, t, "crds", "-l", ours)
	})
}

func (c *cluster) delete(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if _, errOut, code := c.cp.Kubectl(ctx, append([]string{"delete"}, args...)...); code != 0 {
		t.Errorf("kubectl delete %v: %s", args, errOut)
	}
}

// helm runs Helm, which must succeed.
func (c *cluster) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := c.cp.Helm(t.Context(), args...)
	if code != 0 {
		t.Fatalf("helm %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

// refused runs Helm, which must fail, and gives what it says.
func (c *cluster) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := c.cp.Helm(t.Context(), args...)
	if code == 0 {
		t.Fatalf("helm %s succeeds:\n%s", strings.Join(args, " "), out)
	}
	return errOut
}

// install installs the release.
func (c *cluster) install(t *testing.T, args ...string) string {
	t.Helper()
	return c.helm(t, append([]string{"install", release, chart(t), "-n", namespace, "--create-namespace"}, args...)...)
}

// upgrade upgrades it. Helm reads all schemas of the API server to hold objects against them, which takes a third of the time: it has done
// so at the installation.
func (c *cluster) upgrade(t *testing.T, args ...string) {
	t.Helper()
	c.helm(t, append([]string{"upgrade", release, chart(t), "-n", namespace, "--disable-openapi-validation"}, args...)...)
}

// get reads an object, which must be there.
func (c *cluster) get(t *testing.T, o client.Object, in, name string) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: in, Name: name}, o); err != nil {
		t.Fatal(err)
	}
}

// make creates objects, which are deleted at the end of the test.
func (c *cluster) make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
}

// bind gives a user a ClusterRole, in namespace default unless everywhere.
func (c *cluster) bind(t *testing.T, role, user string, everywhere bool) {
	t.Helper()
	of := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	to := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	if everywhere {
		c.make(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-" + user}, RoleRef: of, Subjects: to})
		return
	}
	c.make(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "test-" + user}, RoleRef: of, Subjects: to})
}

// as is the client of a user.
func (c *cluster) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.cp.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	other, err := client.New(config, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// sallyport is the client of the account of the release.
func (c *cluster) sallyport(t *testing.T) client.Client {
	t.Helper()
	config, err := c.cp.ServiceAccountConfig(t.Context(), namespace, "sallyport")
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.New(config, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, look func(context.Context) error) {
	t.Helper()
	var last error
	err := step.Await(t.Context(), func(ctx context.Context) (bool, error) {
		last = look(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v; last: %v", what, err, last)
	}
}

// What Helm has installed is what it has rendered, nothing of it left out or refused by the API server, and the notes say what
// comes next. After the removal only the definitions are left.
func TestInstallAndUninstall(t *testing.T) {
	c := newCluster(t)
	tried := map[string]string{
		"by default": "",
		"everything": strings.NewReplacer("serviceMonitor: {enabled: true", "serviceMonitor: {enabled: false", "prometheusRule: {enabled: true", "prometheusRule: {enabled: false").Replace(everything), // no definitions of them
	}
	if testing.Short() { // each walk installs the default
		delete(tried, "by default")
	}
	for name, text := range tried {
		t.Run(name, func(t *testing.T) {
			notes := c.install(t, "-f", values(t, text))
			for _, want := range []string{"kubectl sallyport release --all", "helm uninstall sallyport -n sallyport-system", "kubectl edit rego", "rollout status deployment/sallyport"} {
				if !strings.Contains(notes, want) {
					t.Errorf("the notes do not say %q:\n%s", want, notes)
				}
			}
			if warned := strings.Contains(notes, "WARNING"); warned != (text != "") {
				t.Errorf("a warning: %t\n%s", warned, notes)
			}
			objects := render(t, text)
			for _, o := range objects {
				if isOfPrometheus(o) {
					continue
				}
				live := &unstructured.Unstructured{}
				live.SetGroupVersionKind(o.GroupVersionKind())
				c.get(t, live, o.GetNamespace(), o.GetName())
				if owner := live.GetAnnotations()["meta.helm.sh/release-name"]; owner != release {
					t.Errorf("%s %s belongs to release %q", o.GetKind(), o.GetName(), owner)
				}
			}
			stored := &corev1.Secret{}
			c.get(t, stored, namespace, "sh.helm.release.v1.sallyport.v1")
			if size := len(stored.Data["release"]); size > maxRelease {
				t.Errorf("Helm stores %d bytes about this release, and a Secret can have no more than 1 MiB", size)
			}
			c.helm(t, "uninstall", release, "-n", namespace)
			for _, o := range objects {
				live := &unstructured.Unstructured{}
				live.SetGroupVersionKind(o.GroupVersionKind())
				kept := o.GetKind() == "CustomResourceDefinition"
				err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live)
				if kept && err != nil || !kept && !isOfPrometheus(o) && !apierrors.IsNotFound(err) {
					t.Errorf("after the removal, %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// bundles gives the caBundles of the webhook configurations.
func (c *cluster) bundles(t *testing.T) []string {
	t.Helper()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	c.get(t, mutating, "", "sallyport")
	c.get(t, validating, "", "sallyport")
	var all []string
	for i := range mutating.Webhooks {
		all = append(all, string(mutating.Webhooks[i].ClientConfig.CABundle))
	}
	for i := range validating.Webhooks {
		all = append(all, string(validating.Webhooks[i].ClientConfig.CABundle))
	}
	return all
}

// trust writes a caBundle as the manager does.
func (c *cluster) trust(t *testing.T, bundle string) {
	t.Helper()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	c.get(t, mutating, "", "sallyport")
	c.get(t, validating, "", "sallyport")
	before := []client.Object{mutating.DeepCopy(), validating.DeepCopy()}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = []byte(bundle)
	}
	for i, o := range []client.Object{mutating, validating} {
		patch := client.StrategicMergeFrom(before[i], client.MergeFromWithOptimisticLock{})
		if err := c.Patch(t.Context(), o, patch, client.FieldOwner("sallyport-certificates")); err != nil {
			t.Fatal(err)
		}
	}
}

// However Helm writes, an upgrade and a rollback leave the caBundle and the webhooks of policies as the manager wrote them, and change
// what they are to change; and an uninstall leaves nothing.
func TestUpgradeKeepsWhatTheManagerWrote(t *testing.T) {
	bundle := certificate(t)
	modes := []string{"true", "false"}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run("server-side "+mode, func(t *testing.T) {
			c := newCluster(t)
			c.install(t, "--server-side="+mode)
			c.trust(t, bundle)
			registered := c.register(t)
			check := func(after string, timeout int32, annotation string) {
				t.Helper()
				for _, got := range c.bundles(t) {
					if got != bundle {
						t.Errorf("after %s a caBundle is %q", after, got)
					}
				}
				validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
				c.get(t, validating, "", "sallyport")
				if got := *validating.Webhooks[0].TimeoutSeconds; got != timeout {
					t.Errorf("after %s the timeout is %d, not %d", after, got, timeout)
				}
				registered.check(c, t, after, annotation)
			}
			c.upgrade(t, "--server-side="+mode, "--set", "webhook.timeoutSeconds=4")
			check("an upgrade", 4, "")
			c.upgrade(t, "--server-side="+mode, "--set", "webhook.timeoutSeconds=3", "--set", `webhook.annotations.example\.com/a=b`)
			check("another", 3, "b")
			c.helm(t, "rollback", release, "1", "-n", namespace)
			check("a rollback", 5, "")
			if mode == "false" {
				c.upgrade(t, "--server-side=true", "--set", "webhook.timeoutSeconds=4")
				check("an upgrade that writes in the other way", 4, "")
				c.upgrade(t, "--server-side=false", "--set", "webhook.timeoutSeconds=3")
				check("one that writes as the first", 3, "")
			}
			c.helm(t, "uninstall", release, "-n", namespace)
			registered.gone(c, t)
		})
	}
}

func TestUpgradeChangesDefinitions(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.forget(t)
	c.install(t)
	// A definition as an older release would have left it.
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.get(t, crd, "", "virtualmachines.sallyport.dev")
	want := crd.DeepCopy()
	c.upgrade(t, "--set", "policies.operations-supersede.mode=Warn")
	c.get(t, crd, "", "virtualmachines.sallyport.dev")
	if diff := cmp.Diff(want.Spec, crd.Spec); diff != "" || crd.UID != want.UID {
		t.Errorf("an upgrade that changes nothing there changes a definition (-before +after):\n%s", diff)
	}
	c.server(t)

	dir := chart(t)
	file := filepath.Join(dir, "files", "crds", "sallyport.dev_virtualmachines.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "    - svm\n", "    - svm\n    - svmachine\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.helm(t, "upgrade", release, dir, "-n", namespace)
	c.get(t, crd, "", "virtualmachines.sallyport.dev")
	if got := crd.Spec.Names.ShortNames; !slices.Equal(got, []string{"svm", "svmachine"}) {
		t.Errorf("the definition was not upgraded: short names %v", got)
	}
	c.upgrade(t, "--set", "crds.install=false")
	c.get(t, &v1alpha1.VSphereServer{}, "", "kept")
}

// server makes an object of a kind of ours that no webhook is asked about.
func (c *cluster) server(t *testing.T) {
	t.Helper()
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	server.Spec.URL, server.Spec.CredentialsSecretRef.Name = "https://vcenter.example.com", "credentials"
	server.Spec.Trust.CABundle = certificate(t)
	if err := c.Create(t.Context(), server); err != nil {
		t.Fatal(err)
	}
}

// certificate gives a certificate in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test"}, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cert.EncodeCertificates(made)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSecondReleaseIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.install(t)
	for name, args := range map[string][]string{
		"of another name":      {"other", "-n", namespace},
		"in another namespace": {release, "-n", "elsewhere", "--create-namespace"},
		"that would take over": {"other", "-n", namespace, "--take-ownership"},
	} {
		said := c.refused(t, append([]string{"install", args[0], chart(t)}, args[1:]...)...)
		for _, want := range []string{
			"Sallyport is already installed in this cluster: release sallyport in namespace sallyport-system", "helm upgrade sallyport -n sallyport-system",
			"kubectl sallyport release --all", "helm uninstall sallyport -n sallyport-system",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("a release %s: %q, which does not say %q", name, said, want)
			}
		}
	}
	c.upgrade(t) // is not a second one
}

// What stays after a removal is taken over by the same release, and by another one that is told to.
func TestInstallAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.forget(t)
	c.install(t)
	c.server(t)
	c.helm(t, "uninstall", release, "-n", namespace)
	c.install(t)
	c.helm(t, "uninstall", release, "-n", namespace)

	other := []string{"install", "gate", chart(t), "-n", "elsewhere", "--create-namespace"}
	said := c.refused(t, other...)
	for _, want := range []string{"CustomResourceDefinition", "cannot be imported into the current release", `current value is "sallyport"`} {
		if !strings.Contains(said, want) {
			t.Errorf("another release: %q, which does not say %q", said, want)
		}
	}
	c.helm(t, append(other, "--take-ownership")...)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.get(t, crd, "", "virtualmachines.sallyport.dev")
	if crd.Annotations["meta.helm.sh/release-name"] != "gate" || crd.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("a definition that was taken over has %v", crd.Annotations)
	}
	c.get(t, &v1alpha1.VSphereServer{}, "", "kept")
}

// The pods are admitted where the strictest standard is enforced.
func TestPodIsRestricted(t *testing.T) {
	c := newCluster(t)
	for name, text := range map[string]string{"by default": "", "everything": everything} {
		t.Run(name, func(t *testing.T) {
			strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-", Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
			}}}
			if err := c.Create(t.Context(), strict); err != nil {
				t.Fatal(err)
			}
			deploymentName := map[bool]string{true: "sallyport", false: "sallyport-gate"}[text == ""]
			deployment := rendered[appsv1.Deployment](t, render(t, text), "Deployment", deploymentName)
			template := deployment.Spec.Template
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: strict.Name, Name: template.Spec.ServiceAccountName}}
			if err := c.Create(t.Context(), account); err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Namespace, pod.Name = strict.Name, "sallyport"
			if err := c.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
				t.Error(err)
			}
			pod.Spec.SecurityContext.RunAsNonRoot = nil
			pod.Spec.SecurityContext.RunAsUser = ptr.To[int64](0)
			if err := c.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
				t.Errorf("root: %v; the standard is not enforced", err)
			}
		})
	}
}
