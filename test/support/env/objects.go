package env

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"
)

// crdTimeout is generous; a definition is served some 100 ms after it is made.
const crdTimeout = 30 * time.Second

// InstallCRDs creates or updates definitions and returns when the API server serves them and discovery shows them. The
// arguments stay as they are.
func (cp *ControlPlane) InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error {
	if len(crds) == 0 {
		return nil
	}
	client, err := apiextensions.NewForConfig(cp.Config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	for _, crd := range crds {
		if err := applyCRD(ctx, client.CustomResourceDefinitions(), crd); err != nil {
			return fmt.Errorf("CRD %s: %w", crd.Name, err)
		}
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cp.Config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	var missing error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, crdTimeout, true, func(ctx context.Context) (bool, error) {
		missing = nil
		for _, crd := range crds {
			if err := established(ctx, client.CustomResourceDefinitions(), crd.Name); err != nil {
				missing = err
				return false, nil
			}
		}
		missing = discovered(disco, crds)
		return missing == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the CRDs to be served: %w", errors.Join(err, missing))
	}
	return nil
}

func applyCRD(
	ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, crd *apiextensionsv1.CustomResourceDefinition,
) error {
	_, err := client.Create(ctx, crd.DeepCopy(), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		updated := crd.DeepCopy()
		updated.ResourceVersion = current.ResourceVersion
		_, err = client.Update(ctx, updated, metav1.UpdateOptions{})
		return err
	})
}

// established returns nil if a definition is in force, and otherwise why not.
func established(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, name string) error {
	crd, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range crd.Status.Conditions {
		refused := condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse
		if refused {
			return fmt.Errorf("CRD %s: %s", name, condition.Message)
		}
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("CRD %s is not established", name)
}

// discovered returns nil if discovery shows all served versions. It asks as clients do, in one request for all groups,
// which lags behind the requests for single groups.
func discovered(disco discovery.DiscoveryInterface, crds []*apiextensionsv1.CustomResourceDefinition) error {
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	shown := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			shown[list.GroupVersion+"/"+resource.Name] = true
		}
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			name := crd.Spec.Group + "/" + version.Name + "/" + crd.Spec.Names.Plural
			if version.Served && !shown[name] {
				return fmt.Errorf("discovery does not show %s", name)
			}
		}
	}
	return nil
}

// Service makes a Service without a selector, and its namespace, as far as they are missing, and returns the Service's
// address. That is a loopback address: a server that listens there on the port is what the API server reaches when a
// webhook configuration names the Service, under the host name <name>.<namespace>.svc. No other control plane has it.
func (cp *ControlPlane) Service(ctx context.Context, namespace, name string, port int32) (clusterIP string, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err = cp.clientset.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("namespace %s: %w", namespace, err)
	}
	services := cp.clientset.CoreV1().Services(namespace)
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		service, err = services.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		return ip, nil
	}
	return "", fmt.Errorf("service %s/%s has no address of its own", namespace, name)
}
