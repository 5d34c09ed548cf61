package virt

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StorageClass is the StorageClass of the agent, which plays its provisioner. The volumes have no data. It plays the resizer of all classes.
const StorageClass = "volumes"

func (a *Agent) addStorageClass(ctx context.Context) error {
	return a.Create(ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: StorageClass},
		Provisioner: "agent.test", AllowVolumeExpansion: new(true), ReclaimPolicy: new(corev1.PersistentVolumeReclaimRetain),
	})
}

// stepClaims creates the volumes of claims, and resizes them.
func (a *Agent) stepClaims(ctx context.Context) {
	var claims corev1.PersistentVolumeClaimList
	if a.List(ctx, &claims) != nil {
		return
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		is := claim.Status.Capacity[corev1.ResourceStorage]
		switch {
		case !claim.DeletionTimestamp.IsZero():
		case claim.Spec.VolumeName == "" && claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName == StorageClass:
			_ = a.Create(ctx, volumeFor(claim))
		case claim.Status.Phase == corev1.ClaimBound && is.Cmp(wanted) < 0:
			claim.Status.Capacity = claim.Spec.Resources.Requests
			_ = a.Status().Update(ctx, claim)
		}
	}
}

func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-" + string(claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			StorageClassName: StorageClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "agent.test", VolumeHandle: string(claim.UID)}},
		},
	}
}

// Settled reports whether a claim is bound and has its size, or, if it is deleted, is gone.
func (c *Cluster) Settled(ctx context.Context, claim client.ObjectKey, deleted bool) bool {
	now := &corev1.PersistentVolumeClaim{}
	err := c.Get(ctx, claim, now)
	if deleted || err != nil {
		return deleted && client.IgnoreNotFound(err) == nil && err != nil
	}
	is := now.Status.Capacity[corev1.ResourceStorage]
	return now.Status.Phase == corev1.ClaimBound && is.Cmp(now.Spec.Resources.Requests[corev1.ResourceStorage]) >= 0
}
