package claims

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

// pods are machines that are Pods, beside Pods of users.
type pods struct {
	*world
	nodes  *nodeagent.Agent
	theirs map[types.UID]bool // the Pods of users
}

func newPods(w *world) *pods {
	return &pods{w, nodeagent.New(apiserver.ForNodes(w), "node-1", "node-2"), map[types.UID]bool{}}
}

func (p *pods) runtime(c client.Client) runtime.Runtime { return &pod.Runtime{Client: c, Live: c} }

func (p *pods) machine() v1alpha1.VirtualMachineRuntime { return p.template() }

func (p *pods) template() v1alpha1.VirtualMachineRuntime {
	return v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}
}

func (p *pods) disk() v1alpha1.VirtualDiskRuntime {
	return v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{StorageClassName: p.class}}
}

func (p *pods) all() []corev1.Pod { return list[corev1.PodList](p.world).Items }

// running returns the name of a Pod that has not ended and has a claim, beside the one of that name, or "".
func (p *pods) running(claim, but string) string {
	for _, o := range p.all() {
		ended := o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
		if o.Name != but && !ended && slices.Contains(podClaims(&o), claim) {
			return o.Name
		}
	}
	return ""
}

func podClaims(o *corev1.Pod) (all []string) {
	for _, v := range o.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return all
}

func (p *pods) guard() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, o, opts...)
			if made, is := o.(*corev1.Pod); is && err == nil {
				p.created(made)
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			p.touched(o, "changed")
			return c.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			p.touched(o, "deleted")
			err := c.Delete(ctx, o, opts...)
			if _, is := o.(*corev1.PersistentVolumeClaim); is && err == nil {
				if by := p.running(o.GetName(), ""); by != "" {
					p.breaks("claim %s was deleted, which Pod %s has", o.GetName(), by)
				}
			}
			return err
		},
	}
}

func (p *pods) created(o *corev1.Pod) {
	for _, claim := range podClaims(o) {
		if by := p.running(claim, o.Name); by != "" {
			p.breaks("Pod %s is created with claim %s, which Pod %s has", o.Name, claim, by)
		}
	}
}

func (p *pods) touched(o client.Object, how string) {
	if p.theirs[o.GetUID()] {
		p.breaks("%s of a user is %s", o.GetName(), how)
	}
}

// goesOn has the nodes, the garbage collector and the kubelet do what is due.
func (p *pods) goesOn() {
	p.must(p.nodes.Step(p.ctx))
	machines := p.machines()
	var owners []client.Object
	for i := range machines {
		owners = append(owners, &machines[i])
	}
	for _, o := range p.all() {
		by := metav1.GetControllerOf(&o)
		gone := by != nil && !slices.ContainsFunc(machines, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == by.UID })
		if gone && o.DeletionTimestamp.IsZero() {
			p.must(p.Delete(p.ctx, &o))
		}
	}
	p.collectGarbage(owners...)
}

func (p *pods) ends() {}

func (p *pods) versions() (all string) {
	for _, o := range p.all() {
		all += o.Name + o.ResourceVersion + " "
	}
	return all
}

func (p *pods) differs(vm *v1alpha1.VirtualMachine) string {
	of := &corev1.Pod{}
	if err := p.Get(p.ctx, p.key(vm.Status.InstanceID), of); err != nil {
		return "has no machine"
	}
	on := of.Annotations[agent.AnnotationState] == string(agent.Running)
	switch {
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn && !on:
		return "is not on"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOff && on:
		return "is not off"
	}
	for _, d := range p.disks() {
		if vm.Spec.Names(d.Name) && !slices.Contains(podClaims(of), d.Status.DiskID) {
			return "has no disk " + d.Name
		}
	}
	return ""
}

func (p *pods) users() map[string]func() {
	return map[string]func(){
		"foreign": p.foreign, "copy": p.copied, "end": p.end, "remove": p.remove, "strip": p.strip,
	}
}

// foreign makes a Pod of a user that has a claim.
func (p *pods) foreign() {
	p.their(&corev1.Pod{ObjectMeta: p.meta(p.draw([]string{"f-0", "f-1"}, "name")), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "job", Image: "busybox"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.anyClaim()},
		}}},
	}})
}

func (p *pods) their(o *corev1.Pod) {
	if p.Get(p.ctx, client.ObjectKeyFromObject(o), &corev1.Pod{}) == nil {
		return
	}
	p.must(p.Create(p.ctx, o))
	p.theirs[o.UID] = true
}

// copied is a Pod that a user pastes under another name, with its labels and owners, or without these.
func (p *pods) copied() {
	of := one(p.world, p.all(), "Pod")
	if of == nil {
		return
	}
	o := &corev1.Pod{ObjectMeta: p.meta(p.draw([]string{"c-0", "c-1"}, "copy")), Spec: *of.Spec.DeepCopy()}
	o.Labels, o.Annotations, o.Spec.NodeName = maps.Clone(of.Labels), maps.Clone(of.Annotations), ""
	if p.flip("with owners") {
		o.OwnerReferences = of.OwnerReferences
	}
	p.their(o)
}

// end has a Pod of a user end.
func (p *pods) end() {
	all := slices.DeleteFunc(p.all(), func(o corev1.Pod) bool { return !p.theirs[o.UID] })
	if o := one(p.world, all, "Pod"); o != nil {
		o.Status.Phase = corev1.PodSucceeded
		p.must(p.Status().Update(p.ctx, o))
	}
}

// remove deletes a Pod, of a user or not.
func (p *pods) remove() {
	if o := one(p.world, p.all(), "Pod"); o != nil {
		p.must(p.Delete(p.ctx, o))
	}
}

// strip removes the labels of a Pod.
func (p *pods) strip() {
	if o := one(p.world, p.all(), "Pod"); o != nil {
		maps.DeleteFunc(o.Labels, func(key, _ string) bool { return strings.HasPrefix(key, "sallyport.dev/") })
		p.must(p.Update(p.ctx, o))
	}
}
