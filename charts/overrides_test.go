package charts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Nobody writes an override for somebody else: an administrator's next delete would use it, and be recorded as their own override.
func TestOverridesAreWrittenByTheirUsers(t *testing.T) {
	c := newCluster(t)
	c.helm(t, "install", release, chart(t), "-n", namespace, "--create-namespace", "--set", "webhook.failurePolicy=Ignore")
	mallory := c.as(t, "mallory", "system:masters")
	const key = "sallyport.dev/override"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "overridden", UID: "other"}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
	pod.Annotations = map[string]string{key: "a-policy; uid=; by=kubernetes-admin; until=2026-01-01T00:00:00Z; a new object"}
	c.make(t, pod)
	write := func(ctx context.Context, uid, by string) error {
		value := fmt.Sprintf("a-policy; uid=%s; by=%s; until=2026-01-01T00:00:00Z; ticket 42", uid, by)
		return mallory.Patch(ctx, pod.DeepCopy(), merge(`{"metadata":{"annotations":{%q:%q}}}`, key, value), client.DryRunAll)
	}
	eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if err := write(ctx, string(pod.UID), "kubernetes-admin"); err == nil {
			return errors.New("mallory writes an override for kubernetes-admin")
		}
		return nil
	})
	uid := string(pod.UID)
	for what, tc := range map[string]struct {
		err     error
		refused bool
	}{
		"for an administrator":          {write(t.Context(), uid, "kubernetes-admin"), true},
		"for a user of a longer name":   {write(t.Context(), uid, "mallory2"), true},
		"for two users":                 {write(t.Context(), uid, "kubernetes-admin;by=mallory"), true},
		"with other spaces":             {write(t.Context(), uid+" ", " mallory"), true},
		"for nobody":                    {write(t.Context(), uid, ""), true},
		"for themselves":                {write(t.Context(), uid, "mallory"), false},
		"of another object":             {write(t.Context(), "0f0e", "kubernetes-admin"), false},
		"of a new object":               {write(t.Context(), "", "kubernetes-admin"), false},
		"by way of a subresource":       {mallory.Status().Patch(t.Context(), pod.DeepCopy(), merge(`{"metadata":{"annotations":{%q:"p; uid=%s; by=admin; until=x; y"}}}`, key, uid), client.DryRunAll), true},
		"that is removed":               {mallory.Patch(t.Context(), pod.DeepCopy(), merge(`{"metadata":{"annotations":{%q:null}}}`, key), client.DryRunAll), false},
		"that stays, as another does":   {mallory.Patch(t.Context(), pod.DeepCopy(), merge(`{"metadata":{"annotations":{"a":"b"}}}`), client.DryRunAll), false},
		"of a text that is none at all": {mallory.Patch(t.Context(), pod.DeepCopy(), merge(`{"metadata":{"annotations":{%q:"uid=%s"}}}`, key, uid), client.DryRunAll), true},
	} {
		switch {
		case !tc.refused && tc.err != nil:
			t.Errorf("an override %s: %v", what, tc.err)
		case what == "by way of a subresource" && apierrors.IsForbidden(tc.err) && strings.Contains(tc.err.Error(), "-subresources"):
			// Two policies deny this, and either may be the one that the API server names.
		case tc.refused && (!apierrors.IsForbidden(tc.err) || !strings.Contains(tc.err.Error(), "by= must be the user who writes the annotation, mallory")):
			t.Errorf("an override %s is not refused, or without the reason: %v", what, tc.err)
		}
	}
}
