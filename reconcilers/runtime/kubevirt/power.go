package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// The resources whose subresources are used.
const (
	machines  = "virtualmachines"
	instances = "virtualmachineinstances"
)

// Subresources are the subresources of KubeVirt's aggregated API.
type Subresources interface {
	// Put sends a request to a subresource of an object, such as unpause of virtualmachineinstances.
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

// announce writes that this runtime changes the power or moves the machine next, so that what is then in flight is known to be ours, with
// what else is to be changed before.
func (r *Runtime) announce(ctx context.Context, s *sight, kind runtime.TaskKind, also func(*virtv1.VirtualMachine)) error {
	next := announced{kind: kind, id: string(uuid.NewUUID())}
	if kind == runtime.TaskPowerOff {
		next.ends = s.instance()
	}
	return r.change(ctx, s.vm, "configuring", func(vm *virtv1.VirtualMachine) {
		annotate(vm, annotationSent, next.String())
		if also != nil {
			also(vm)
		}
	})
}

// announceCancel writes that this runtime ends the instance whose start it announced last.
func (r *Runtime) announceCancel(ctx context.Context, s *sight) error {
	if s.canceled() {
		return nil
	}
	last := announcedOf(s.vm)
	last.ends = s.instance()
	return r.change(ctx, s.vm, "configuring", func(vm *virtv1.VirtualMachine) { annotate(vm, annotationSent, last.String()) })
}

// announced is what this runtime announced last.
type announced struct {
	kind runtime.TaskKind
	id   string
	// ends is the instance that it ends, if any.
	ends types.UID
}

// announcedOf returns what this runtime announced last for a machine.
func announcedOf(vm *virtv1.VirtualMachine) announced {
	kind, rest, _ := strings.Cut(vm.Annotations[annotationSent], "/")
	id, ends, _ := strings.Cut(rest, "/")
	return announced{runtime.TaskKind(kind), id, types.UID(ends)}
}

func (a announced) String() string {
	return strings.TrimSuffix(string(a.kind)+"/"+a.id+"/"+string(a.ends), "/")
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

// request writes the requests to start or to stop an instance, see ask.
func (r *Runtime) request(ctx context.Context, s *sight, doing string, requests ...virtv1.VirtualMachineStateChangeRequest) error {
	return r.ask(ctx, s, doing, func(status *virtv1.VirtualMachineStatus) {
		status.StateChangeRequests, status.StartFailure = requests, nil
	})
}

// ask writes requests that virt-controller carries out into the status of the machine, with its resourceVersion. The subresources start, stop,
// addvolume and removevolume would write the same, but have no precondition: a request that is delayed until its caller has given up would
// change another instance than the one that was seen.
func (r *Runtime) ask(ctx context.Context, s *sight, doing string, edit func(*virtv1.VirtualMachineStatus)) error {
	changed := s.vm.DeepCopy()
	edit(&changed.Status)
	patch, err := r.patchOf(ctx, s.vm, changed)
	if err == nil {
		err = r.Client.Status().Patch(ctx, changed, patch)
	}
	switch {
	case err == nil:
		*s.vm = *changed
		return nil
	case refused(err):
		return runtime.NewInvalidState(err, "%s KubeVirt VirtualMachine %s: %s", doing, s.vm.Name, reason(err))
	}
	return runtime.APIFailure(err, "%s KubeVirt VirtualMachine %s", doing, s.vm.Name)
}

// start requests an instance. One that has ended is removed first.
func (r *Runtime) start(ctx context.Context, s *sight) error {
	requests := []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
	if s.vmi != nil {
		requests = slices.Insert(requests, 0, s.stopRequest())
	}
	return r.request(ctx, s, "starting", requests...)
}

// withdraw takes back a request to start the machine that KubeVirt has not begun to carry out.
func (r *Runtime) withdraw(ctx context.Context, s *sight) error {
	return r.request(ctx, s, "withdrawing the start of")
}

// stop requests the end of the instance, unless that is requested, and takes back a request to start it again.
func (r *Runtime) stop(ctx context.Context, s *sight) error {
	if s.leaving() && !s.requested(virtv1.StartRequest) {
		return nil
	}
	return r.request(ctx, s, "stopping", s.stopRequest())
}

func (s *sight) stopRequest() virtv1.VirtualMachineStateChangeRequest {
	return virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &s.vmi.UID}
}

// kill ends the guest of an instance that is being stopped, as a forced restart of KubeVirt does: it deletes the Pods of the instance. Only
// KubeVirt's accounts may shorten the grace period of an instance, and the subresource that does has no precondition.
func (r *Runtime) kill(ctx context.Context, s *sight) error {
	pods, err := r.launchers(ctx, s.vmi)
	if err != nil {
		return err
	}
	for i := range pods {
		err := r.Client.Delete(ctx, &pods[i], client.Preconditions{UID: &pods[i].UID}, client.GracePeriodSeconds(atOnce))
		if client.IgnoreNotFound(err) != nil {
			return runtime.APIFailure(err, "deleting Pod %s of VirtualMachineInstance %s", pods[i].Name, s.vmi.Name)
		}
	}
	return nil
}

// atOnce is the shortest grace period with which a Pod exists until the kubelet has seen it end.
const atOnce = 1

// launchers returns the Pods of an instance in which its guest may run.
func (r *Runtime) launchers(ctx context.Context, vmi *virtv1.VirtualMachineInstance) ([]corev1.Pod, error) {
	var list corev1.PodList
	of := client.MatchingLabels{virtv1.AppLabel: "virt-launcher", virtv1.CreatedByLabel: string(vmi.UID)}
	if err := r.Live.List(ctx, &list, client.InNamespace(vmi.Namespace), of); err != nil {
		return nil, runtime.APIFailure(err, "listing the Pods of VirtualMachineInstance %s", vmi.Name)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

// killed reports whether the Pods of an instance are being deleted without their guest being asked.
func (r *Runtime) killed(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (bool, error) {
	pods, err := r.launchers(ctx, vmi)
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds > atOnce
	}), err
}
