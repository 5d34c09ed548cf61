package charts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
)

// The Pods that import images reach DNS and what is not excluded, in the namespaces that are listed.
func TestImportersAreLimited(t *testing.T) {
	for _, o := range render(t, "diskImages: {enabled: true}") {
		if o.GetKind() == "NetworkPolicy" {
			t.Errorf("by default there is NetworkPolicy %s", o.GetName())
		}
	}
	all := render(t, `diskImages: {networkPolicy: {namespaces: [team-a, team-b, team-a], except: [10.0.0.0/8, "fd00::/8", 169.254.0.0/16]}}`)
	var namespaces []string
	for _, o := range all {
		if o.GetKind() == "NetworkPolicy" {
			namespaces = append(namespaces, o.GetNamespace())
		}
	}
	if !slices.Equal(namespaces, []string{"team-a", "team-b"}) {
		t.Fatalf("the namespaces are %v", namespaces)
	}
	spec := rendered[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "sallyport-importers").Spec
	want := []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "169.254.0.0/16"}}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fd00::/8"}}},
	}
	if len(spec.Egress) != 2 || len(spec.Egress[0].Ports) != 2 || len(spec.Egress[0].To) != 0 {
		t.Fatalf("egress %+v", spec.Egress)
	}
	if diff := cmp.Diff(want, spec.Egress[1].To); diff != "" {
		t.Errorf("egress (-want +got):\n%s", diff)
	}
	if spec.PodSelector.MatchLabels["cdi.kubevirt.io"] != "importer" || !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}) {
		t.Errorf("spec %+v", spec)
	}
}
