package manager

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/template/ova"
)

// The policy that judges URLs has a list of its own of what is local.
func TestLocalAddressesOfThePolicy(t *testing.T) {
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	of := shipped[slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "lib-hosts" })]
	module, err := ast.ParseModule("hosts.rego", of.Spec.Modules[0].Source)
	if err != nil {
		t.Fatal(err)
	}
	var judged []netip.Prefix
	for _, rule := range module.Rules {
		if rule.Head.Name != "local" {
			continue
		}
		if err := ast.As(rule.Head.Value.Value, &judged); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(ova.LocalAddresses(), judged, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("local of lib-hosts has something else than the download refuses (-want +got):\n%s", diff)
	}
}

// The ranges that nothing is downloaded from reach the downloads as they were given.
func TestForbiddenRanges(t *testing.T) {
	compare := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(ova.LocalAddresses(), (&Options{TemplateForbidden: LocalRanges()}).forbidden(), compare); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	var given []net.IPNet
	want := []string{"10.96.0.0/12", "fd00::/8", "192.0.2.1/32"}
	for _, text := range want {
		_, parsed, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, *parsed)
	}
	var got []string
	for _, prefix := range (&Options{TemplateForbidden: given}).forbidden() {
		if !prefix.IsValid() {
			t.Errorf("%v forbids nothing", prefix)
		}
		got = append(got, prefix.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
