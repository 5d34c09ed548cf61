package drive

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ImageChanged drops what changes nothing for disks and machines that wait for an image, above all the progress of an import.
var ImageChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VMDiskImage)
	now, is := e.ObjectNew.(*v1alpha1.VMDiskImage)
	if !was || !is {
		return false
	}
	reason, message := before.Unusable()
	nowReason, nowMessage := now.Unusable()
	return reason != nowReason || message != nowMessage
}}
