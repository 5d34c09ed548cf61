package manager

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sallyport.dev/sallyport/reconcilers/template/ova"
)

// The ranges that nothing is downloaded from reach the cache as they were given.
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
