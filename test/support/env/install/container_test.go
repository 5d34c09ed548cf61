package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestContainerAsTheKubeletWouldRunIt(t *testing.T) {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	d := &deployed{
		args: []string{"manager", "--replica-name=$(POD_NAME)", "--replica-uid=$(POD_UID)", "--other=$(OTHER)", "--url=$(URL)"},
		env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "POD_UID", ValueFrom: field("metadata.uid")},
			{Name: "URL", Value: "http://$(POD_NAME)/"},
			{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
		},
	}
	args, env, err := d.as("system", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"manager", "--replica-name=a", "--replica-uid=", "--other=$(OTHER)", "--url=http://a/"}, args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"POD_NAME=a", "POD_UID=", "URL=http://a/"}, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	d.env = []corev1.EnvVar{{Name: "NODE", ValueFrom: field("spec.nodeName")}}
	if _, _, err := d.as("system", "a", ""); err == nil {
		t.Error("the name of a node is known outside of a pod")
	}
}
