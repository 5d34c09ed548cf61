package diskimage

import (
	"context"
	"slices"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A reconcile of a ready image reads its objects by their names: a list by labels would have the API server look at all claims of the
// namespace. Of an image that is being deleted, all objects are listed.
func TestObjectsOfAReadyImageAreReadByName(t *testing.T) {
	w := ready(t)
	selected := func() (all []string) {
		live := interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				if by := (&client.ListOptions{}).ApplyOptions(opts).FieldSelector; by != nil {
					all = append(all, by.String())
				} else {
					all = append(all, "")
				}
				return c.List(ctx, o, opts...)
			},
		})
		r := &Reconciler{Client: w, Live: live, Events: w.events, Now: func() time.Time { return w.now }}
		_, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: imageKey})
		w.must(err)
		return all
	}
	name := "metadata.name=" + childName(w.image().UID, 1)
	if got := selected(); !slices.Equal(got, []string{name, name, name}) {
		t.Errorf("the lists are by %q", got)
	}
	w.must(w.Delete(w.Context(), w.image()))
	if got := selected(); !slices.Equal(got[len(got)-3:], []string{"", "", ""}) {
		t.Errorf("the lists are by %q", got)
	}
}
