package pool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
)

func TestMain(m *testing.M) { install.Main(m) }

func TestX(t *testing.T) {
	api, err := install.Client(env.Shared(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pool-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, mu := range []intstr.IntOrString{intstr.FromInt(3), intstr.FromString("25%"), intstr.FromString("0%"), intstr.FromInt(0), intstr.FromString("x")} {
		p := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, GenerateName: "web-"}}
		p.Spec.ScaleDownPolicy = "Explicit"
		p.Spec.Rollout.MaxUnavailable = &mu
		p.Spec.VirtualMachineTemplate.Spec.Runtime.Pod = &v1alpha1.PodRuntime{}
		t.Log(mu.String(), api.Create(t.Context(), p))
		t.Logf("%+v", p.Spec)
	}
}
