package unattended

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var (
	errDown = errors.New("the API server is down")
	gone    = apierrors.NewNotFound(schema.GroupResource{Resource: "regopolicies"}, "a")
)

// What cannot be read or written is told, and what somebody else has changed or deleted meanwhile is left to them.
func TestMark(t *testing.T) {
	for name, tc := range map[string]struct {
		list, write, ask error
		attended         bool
		marked           int
		want             error
	}{
		"nobody is there":              {marked: 2},
		"somebody is there":            {attended: true},
		"the policies cannot be read":  {list: errDown, want: errDown},
		"it is not known who is there": {ask: errDown, want: errDown},
		"one cannot be written":        {write: errDown, marked: 1, want: errDown},
		"one is gone":                  {write: gone, marked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := policies(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, all client.ObjectList, options ...client.ListOption) error {
					return errors.Join(tc.list, c.List(ctx, all, options...))
				},
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
					if o.GetName() == "a" && tc.write != nil {
						return tc.write
					}
					return c.SubResource(sub).Update(ctx, o, options...)
				},
			})
			err := Mark(t.Context(), c, c.Status(), time.Now(), func(context.Context) (bool, error) { return !tc.attended, tc.ask })
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			tc.list = nil
			all := &v1alpha1.RegoPolicyList{}
			if err := c.List(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			var marked []string
			for i := range all.Items {
				if is(&all.Items[i]) {
					marked = append(marked, all.Items[i].Name)
				}
			}
			if len(marked) != tc.marked {
				t.Errorf("marked are %q", strings.Join(marked, ", "))
			}
		})
	}
}

func policies(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs).WithStatusSubresource(&v1alpha1.RegoPolicy{}).WithObjects(
		&v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "b"}}).Build()
}
