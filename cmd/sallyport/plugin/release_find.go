package plugin

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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// product is the name of the webhook configurations, and the default of the chart's name label.
	product = "sallyport"
	// chartReplicas is the chart's default number of replicas.
	chartReplicas = 2
)

// Labels and annotations of objects that Helm and its charts create.
const (
	nameLabel               = "app.kubernetes.io/name"
	helmNameAnnotation      = "meta.helm.sh/release-name"
	helmNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// installation is the part of an installation that `release` needs.
type installation struct {
	// deployment of the manager, nil if there is none.
	deployment *appsv1.Deployment
	// replicas is the desired number when the Deployment was read.
	replicas int32
	// helmName and helmNamespace are those of the Helm release, empty if Helm did not install it.
	helmName, helmNamespace string
	// hasWebhooks reports whether the API server sends requests about Sallyport's kinds to webhooks.
	hasWebhooks bool
}

// called returns the name of the Deployment as kubectl prints it.
func (i *installation) called() string { return "deployment.apps/" + i.deployment.Name }

// findInstallation finds the only Deployment of a manager, in one namespace or in all.
func (c *cluster) findInstallation(ctx context.Context, namespace string) (installation, error) {
	found := installation{}
	name, configuration, err := c.nameOfChart(ctx)
	if err != nil {
		return found, err
	}
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{nameLabel: name}); err != nil {
		return found, finding("the Deployment of Sallyport", namespace, err)
	}
	if err := onlyOne("Deployments of Sallyport", pointers(list.Items)); err != nil {
		return found, err
	}
	var marked metav1.ObjectMeta
	if configuration != nil {
		found.hasWebhooks, marked = true, configuration.ObjectMeta
	}
	if len(list.Items) == 1 {
		found.deployment = &list.Items[0]
		found.replicas = wanted(found.deployment)
		marked = found.deployment.ObjectMeta
	}
	found.helmName = marked.Annotations[helmNameAnnotation]
	found.helmNamespace = cmp.Or(marked.Annotations[helmNamespaceAnnotation], marked.Namespace)
	return found, nil
}

// wanted returns the desired number of replicas.
func wanted(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// nameOfChart returns the name label of the chart's objects. It reads it from the webhook configuration, whose name is fixed.
func (c *cluster) nameOfChart(ctx context.Context) (string, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Get(ctx, client.ObjectKey{Name: product}, configuration)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return product, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("finding Sallyport's webhook configuration: %w", err)
	}
	return cmp.Or(configuration.Labels[nameLabel], product), configuration, nil
}

// finding wraps an error of a search. If listing all namespaces is forbidden, it suggests -n.
func finding(what, namespace string, err error) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("finding %s: %w (use -n to search a single namespace)", what, err)
	}
	return fmt.Errorf("finding %s: %w", what, err)
}

// onlyOne returns an error if there are several objects.
func onlyOne[T client.Object](what string, found []T) error {
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

// pointers returns pointers to the items.
func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
