package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The resources that have subresources.
const (
	machines  = "virtualmachines"
	instances = "virtualmachineinstances"
)

// Subresources are the subresources of KubeVirt's aggregated API.
type Subresources interface {
	// Put sends a request to a subresource of an object, such as start of virtualmachines.
	Put(ctx context.Context, resource string, object types.NamespacedName, subresource string, options any) error
}

// NewSubresources returns the subresources of a cluster.
func NewSubresources(config *rest.Config) (Subresources, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: virtv1.SubresourceGroupName, Version: "v1"}
	config.NegotiatedSerializer = serializer.WithoutConversionCodecFactory{CodecFactory: clientgoscheme.Codecs}
	c, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the subresources of KubeVirt: %w", err)
	}
	return subresources{c}, nil
}

type subresources struct{ client rest.Interface }

func (s subresources) Put(ctx context.Context, resource string, object types.NamespacedName, subresource string, options any) error {
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return s.client.Put().Namespace(object.Namespace).Resource(resource).Name(object.Name).SubResource(subresource).
		SetHeader("Content-Type", "application/json").MaxRetries(0).Body(body).Do(ctx).Error()
}

// announce writes that this runtime changes the power next, so that what is then in flight is known to be ours, with what else is to be
// changed before.
func (r *Runtime) announce(ctx context.Context, s *sight, kind runtime.TaskKind, also func(*virtv1.VirtualMachine)) error {
	return r.change(ctx, s.vm, "configuring", func(vm *virtv1.VirtualMachine) {
		annotate(vm, annotationSent, string(kind)+"/"+string(uuid.NewUUID()))
		if also != nil {
			also(vm)
		}
	})
}

// put sends a request to a subresource. virt-api says in a conflict why the request does not fit the state of the machine.
func (r *Runtime) put(ctx context.Context, s *sight, resource, subresource string, options any) error {
	err := r.Subresources.Put(ctx, resource, client.ObjectKeyFromObject(s.vm), subresource, options)
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return runtime.NewInvalidState(err, "KubeVirt: %s of %s: %s", subresource, s.vm.Name, reason(err))
	}
	return runtime.APIFailure(err, "%s of KubeVirt VirtualMachine %s", subresource, s.vm.Name)
}

// reason returns the message of the API server, or of a server behind it.
func reason(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// withdraw removes a request to start an instance that KubeVirt has not begun to carry out. There is no subresource for that.
func (r *Runtime) withdraw(ctx context.Context, s *sight) error {
	changed := s.vm.DeepCopy()
	changed.Status.StateChangeRequests = nil
	if err := r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})); err != nil {
		return runtime.APIFailure(err, "withdrawing the start of KubeVirt VirtualMachine %s", s.vm.Name)
	}
	return nil
}
