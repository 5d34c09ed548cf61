//go:build !race

package pods

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// The rights of Sallyport's ServiceAccount on Pods of all namespaces are of use for Pods of VirtualMachines only.
func TestServiceAccountWritesPodsOfMachinesOnly(t *testing.T) {
	t.Parallel()
	stack.Up(t)
	s := step.T{T: t}
	s.Must(stack.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}}))
	as := rest.CopyConfig(stack.Plane.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: stack.Sallyport.User(), Groups: []string{"system:masters"}}
	thief, err := client.New(as, client.Options{Scheme: stack.Client.Scheme()})
	s.Must(err)
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: "vm", UID: "u-1"}, v1alpha1.GroupVersion.WithKind("VirtualMachine"))
		owner.BlockOwnerDeletion = nil
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "stolen", GenerateName: "p-", OwnerReferences: []metav1.OwnerReference{*owner}},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "x"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}},
			},
		}
		change(p)
		return p
	}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	secret := corev1.LocalObjectReference{Name: "s"}
	const others, harmful = "writes only Pods of VirtualMachines", "creates no Pods that act as a ServiceAccount, use the host or read Secrets"
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a machine":               {func(*corev1.Pod) {}, ""},
		"no owner":                {func(p *corev1.Pod) { p.OwnerReferences = nil }, others},
		"another owner":           {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "kubevirt.io/v1" }, others},
		"an owner beside others":  {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = new(false) }, others},
		"a token":                 {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, harmful},
		"a ServiceAccount":        {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "admin" }, harmful},
		"the network of the host": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, harmful},
		"the files of the host":   {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), harmful},
		"a Secret":                {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), harmful},
		"a projected Secret": {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: secret}},
		}}}), harmful},
		"a Secret in its environment": {func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
		}, harmful},
		"a variable of a Secret": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "x", Env: []corev1.EnvVar{
				{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: "k"}}},
			}}}
		}, harmful},
		"a privileged container": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, harmful},
	} {
		err := thief.Create(t.Context(), pod(tc.change), client.DryRunAll)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("creating %s: got %v, want %q", name, err, tc.want)
		}
	}
	foreign := pod(func(p *corev1.Pod) { p.OwnerReferences = nil })
	s.Must(stack.Client.Create(t.Context(), foreign))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"sallyport.dev/virtual-machine-uid":"u-1"}}}`))
	for name, err := range map[string]error{
		"patching": thief.Patch(t.Context(), foreign.DeepCopy(), patch), "deleting": thief.Delete(t.Context(), foreign.DeepCopy()),
	} {
		if err == nil || !strings.Contains(err.Error(), others) {
			t.Errorf("%s a Pod of somebody else: %v", name, err)
		}
	}
	s.Must(stack.Client.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)))
}

// A namespace with the Pod Security level restricted takes the Pods of machines whose template restricts them, and says what others lack.
func TestRestrictedNamespace(t *testing.T) {
	s := newSite(t, "restricted")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.Must(stack.Client.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`))))
	template := `{"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
		"containers": [{"name": "machine", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}`
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "with"}, Spec: v1alpha1.VirtualMachineSpec{
		Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{Template: &runtime.RawExtension{Raw: []byte(template)}}},
	}}
	without := vm.DeepCopy()
	without.Name, without.Spec.Runtime.Pod.Template = "without", nil
	s.create(vm)
	s.create(without)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Until("it is said why", func() (string, bool) {
		s.Must(stack.Client.Get(t.Context(), client.ObjectKeyFromObject(without), without))
		ready := v1alpha1.ConditionReady.In(without.Status.Conditions)
		return fmt.Sprint(ready), ready != nil && strings.HasPrefix(ready.Message, "spec.runtime.pod.template: ") && strings.Contains(ready.Message, "violates PodSecurity")
	})
}
