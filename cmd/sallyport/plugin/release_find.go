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
	// product is the name under which the chart labels what it makes, unless it was told another, and that of the webhook
	// configurations, always.
	product = "sallyport"
	// chartReplicas is how many replicas the chart runs, unless it was told otherwise.
	chartReplicas = 2
)

// The labels and annotations that Helm and its charts put on what they make.
const (
	nameLabel               = "app.kubernetes.io/name"
	helmNameAnnotation      = "meta.helm.sh/release-name"
	helmNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// installation is the part of an installation that a release needs.
type installation struct {
	// deployment of the manager, nil if there is none.
	deployment *appsv1.Deployment
	// replicas are how many it had when it was found.
	replicas int32
	// helmName and helmNamespace are those of Helm's release, empty if it was not Helm that installed it.
	helmName, helmNamespace string
	// judged is whether requests to our kinds are sent to webhooks.
	judged bool
}

// called is the Deployment as kubectl calls it.
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
		found.judged, marked = true, configuration.ObjectMeta
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

// wanted is how many replicas a Deployment is to have.
func wanted(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// nameOfChart is what the chart's objects are labelled with: the webhook configuration, of which there is only one under a
// fixed name, has that label too.
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

// finding says what was looked for in all namespaces, and that one would do.
func finding(what, namespace string, err error) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("finding %s: %w (use -n to search a single namespace)", what, err)
	}
	return fmt.Errorf("finding %s: %w", what, err)
}

// onlyOne refuses to choose between several.
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

// pointers is for what is done with objects in place.
func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
