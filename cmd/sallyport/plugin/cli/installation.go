package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Product is the name of the webhook configurations, and the default of the chart's name label.
const Product = "sallyport"

// Labels and annotations of objects that Helm and its charts create.
const (
	NameLabel               = "app.kubernetes.io/name"
	HelmNameAnnotation      = "meta.helm.sh/release-name"
	HelmNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// Installation is the part of an installation that `release` needs.
type Installation struct {
	// Deployment of the manager, nil if there is none.
	Deployment *appsv1.Deployment
	// Replicas is the desired number when the Deployment was read.
	Replicas int32
	// HelmName and HelmNamespace are those of the Helm release, empty if Helm did not install it.
	HelmName, HelmNamespace string
	// HasWebhooks reports whether the API server sends requests about Sallyport's kinds to webhooks.
	HasWebhooks bool
}

// Name returns the name of the Deployment as kubectl prints it.
func (i *Installation) Name() string { return "deployment.apps/" + i.Deployment.Name }

// FindInstallation finds the only Deployment of a manager, in one namespace or in all.
func (c *Cluster) FindInstallation(ctx context.Context, namespace string) (Installation, error) {
	found := Installation{}
	name, configuration, err := c.NameOfChart(ctx)
	if err != nil {
		return found, err
	}
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{NameLabel: name}); err != nil {
		return found, SearchError("the Deployment of Sallyport", namespace, err)
	}
	if err := OnlyOne("Deployments of Sallyport", Pointers(list.Items)); err != nil {
		return found, err
	}
	var marked metav1.ObjectMeta
	if configuration != nil {
		found.HasWebhooks, marked = true, configuration.ObjectMeta
	}
	if len(list.Items) == 1 {
		found.Deployment = &list.Items[0]
		found.Replicas = ptr.Deref(found.Deployment.Spec.Replicas, 1)
		marked = found.Deployment.ObjectMeta
	}
	found.HelmName = marked.Annotations[HelmNameAnnotation]
	found.HelmNamespace = cmp.Or(marked.Annotations[HelmNamespaceAnnotation], marked.Namespace)
	return found, nil
}

// NameOfChart returns the name label of the chart's objects. It reads it from the webhook configuration, whose name is fixed.
func (c *Cluster) NameOfChart(ctx context.Context) (string, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Get(ctx, client.ObjectKey{Name: Product}, configuration)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return Product, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("finding Sallyport's webhook configuration: %w", err)
	}
	return cmp.Or(configuration.Labels[NameLabel], Product), configuration, nil
}

// SearchError wraps an error of a search. If listing all namespaces is forbidden, it suggests -n.
func SearchError(what, namespace string, err error) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("finding %s: %w (use -n to search a single namespace)", what, err)
	}
	return fmt.Errorf("finding %s: %w", what, err)
}

// OnlyOne returns an error if there are several objects.
func OnlyOne[T client.Object](what string, found []T) error {
	if len(found) < 2 {
		return nil
	}
	names := make([]string, len(found))
	for i, one := range found {
		names[i] = one.GetNamespace() + "/" + one.GetName()
	}
	slices.Sort(names)
	return fmt.Errorf("found several %s: %s; select one with -n NAMESPACE", what, strings.Join(names, ", "))
}

// Pointers returns pointers to the items.
func Pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// PoliciesConfiguration is the name of both webhook configurations in which the manager registers policies for kinds that are not
// Sallyport's.
const PoliciesConfiguration = Product + "-policies"
