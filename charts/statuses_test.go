package charts_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policies select objects by labels that no subresource changes: either the API server does not store them, or it refuses the write.
func TestSubresourcesChangeNoLabels(t *testing.T) {
	c := newCluster(t)
	c.helm(t, "install", release, chart(t), "-n", namespace, "--create-namespace", "--set", "webhook.failurePolicy=Ignore")
	const limit = "sallyport.dev/min-replicas"
	labels, annotations := map[string]string{"team": "a"}, map[string]string{limit: "3", "example.com/a": "b"}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "relabelled", Labels: labels, Annotations: annotations}
	template := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "relabelled", Labels: labels}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: template}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "relabelled", Labels: labels}}
	machine := newMachine("relabelled")
	machine.SetLabels(labels)
	machine.SetAnnotations(annotations)
	c.make(t, space, pod, deployment, node, machine)
	relabel, annotate := `{"metadata":{"labels":{"team":"b"}}}`, `{"metadata":{"annotations":{"sallyport.dev/min-replicas":null}}}`
	status := func(ctx context.Context, o client.Object, patch string) error {
		return c.Status().Patch(ctx, o, merge("%s", patch), client.DryRunAll)
	}
	eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if status(ctx, space.DeepCopy(), relabel) == nil {
			return errors.New("a Namespace is relabelled by its status")
		}
		return nil
	})
	finalized := space.DeepCopy()
	finalized.Labels = map[string]string{"team": "b"}
	// What becomes of a change, beside being refused.
	const (
		kept, ours      = "metadata.labels cannot be changed through a subresource", "annotations under sallyport.dev/ cannot be changed through a subresource"
		dropped, stored = "dropped", "stored"
	)
	finalize := func(ctx context.Context, o client.Object, _ string) error {
		return c.SubResource("finalize").Update(ctx, o, client.DryRunAll)
	}
	for what, tc := range map[string]struct {
		by     func(context.Context, client.Object, string) error
		object client.Object
		patch  string
		want   string
	}{
		"labels of a Namespace, by its status":       {status, space, relabel, kept},
		"labels of a Namespace, by finalize":         {finalize, finalized, "", kept},
		"nothing of a Namespace, by finalize":        {finalize, space, "", dropped},
		"labels of a Pod, by its status":             {status, pod, relabel, kept},
		"annotations of a Pod, by its status":        {status, pod, annotate, ours},
		"annotations of a Deployment, by its status": {status, deployment, annotate, ours},
		"labels of a Deployment, by its status":      {status, deployment, relabel, dropped},
		"labels of a machine, by its status":         {status, machine, relabel, dropped},
		"annotations of a machine, by its status":    {status, machine, annotate, dropped},
		"labels of a Node, by its status":            {status, node, relabel, stored},
		"other annotations of a Pod, by its status":  {status, pod, `{"metadata":{"annotations":{"example.com/a":"c"}}}`, dropped},
		"a status": {status, pod, `{"status":{"message":"a"}}`, dropped},
		"labels of a Namespace": {func(ctx context.Context, o client.Object, patch string) error {
			return c.Patch(ctx, o, merge("%s", patch), client.DryRunAll)
		}, space, relabel, stored},
	} {
		o := tc.object.DeepCopyObject().(client.Object)
		err := tc.by(t.Context(), o, tc.patch)
		switch label := map[string]string{dropped: "a", stored: "b"}[tc.want]; {
		case label == "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", what, err, tc.want)
		case label != "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case label != "" && (o.GetLabels()["team"] != label || o.GetAnnotations()[limit] != tc.object.GetAnnotations()[limit]):
			t.Errorf("%s: the API server stores labels %v and annotations %v", what, o.GetLabels(), o.GetAnnotations())
		}
	}
}
