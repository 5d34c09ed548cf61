package virt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// virt-controller creates a Pod for the volumes that are plugged into an instance, beside its virt-launcher. virt-handler mounts and unmounts
// them from there, and reports the phases of the volumes.

// stepAttachments lets the Pods of plugged volumes go on.
func (a *Agent) stepAttachments(ctx context.Context, launchers []corev1.Pod) {
	var pods corev1.PodList
	if a.List(ctx, &pods, client.MatchingLabels{virtv1.AppLabel: "hotplug-disk"}) != nil {
		return
	}
	nodes := map[types.UID]string{}
	for i := range launchers {
		nodes[launchers[i].UID] = launchers[i].Spec.NodeName
	}
	for i := range pods.Items {
		pod, node := &pods.Items[i], ""
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil {
			node = nodes[owner.UID]
		}
		switch {
		case !pod.DeletionTimestamp.IsZero():
			_ = a.Delete(ctx, pod, client.GracePeriodSeconds(0))
		case pod.Spec.NodeName == "" && node != "":
			_ = a.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
		case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending:
			_ = a.start(ctx, pod)
		}
	}
}

// plugVolumes takes the volumes that are plugged into an instance, or out of it, a step on. It reports whether one has changed, and whether
// all are plugged in.
func plugVolumes(vmi *virtv1.VirtualMachineInstance, held runtime.TaskKind) (changed, all bool) {
	all = true
	for i := range vmi.Status.VolumeStatus {
		v := &vmi.Status.VolumeStatus[i]
		if v.HotplugVolume == nil {
			continue
		}
		next := v.Phase
		switch wanted := slices.ContainsFunc(vmi.Spec.Volumes, func(of virtv1.Volume) bool { return of.Name == v.Name }); {
		case held == runtime.TaskReconfigure:
		case !wanted && (v.Phase == virtv1.VolumeReady || v.Phase == virtv1.HotplugVolumeMounted):
			next = virtv1.HotplugVolumeUnMounted
		case !wanted:
		case v.Phase == virtv1.HotplugVolumeAttachedToNode && v.HotplugVolume.AttachPodUID != "":
			next = virtv1.HotplugVolumeMounted
		case v.Phase == virtv1.HotplugVolumeMounted:
			next = virtv1.VolumeReady
		}
		changed = changed || next != v.Phase
		v.Phase = next
		all = all && next == virtv1.VolumeReady
	}
	return changed, all
}

// waitsForVolumes reports whether an instance is not started yet because of the volumes that are plugged into it.
func waitsForVolumes(vmi *virtv1.VirtualMachineInstance, all bool) bool {
	plugged := slices.ContainsFunc(vmi.Spec.Volumes, func(v virtv1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable
	})
	return plugged && (!all || len(vmi.Status.VolumeStatus) == 0)
}
