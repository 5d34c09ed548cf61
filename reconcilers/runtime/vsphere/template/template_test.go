package template

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

const instance = "5029e7a2-1111-2222-3333-444455556666"

// A descriptor can say anything of the machine, and nothing in our name.
func TestLabel(t *testing.T) {
	config := &types.VirtualMachineConfigSpec{
		Name: "theirs", InstanceUuid: "theirs", Annotation: "theirs", ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: inventory.OurKeys + "owner", Value: "theirs"}, &types.OptionValue{Key: "Sallyport.Template", Value: "theirs"},
			&types.OptionValue{Key: inventory.OurKeys + "name", Value: "theirs"}, &types.OptionValue{Key: "svga.present", Value: "TRUE"},
		},
	}
	mark := inventory.TemplateMark{Owner: "uid", Domain: "a", Mark: templates.Mark{Release: "1", Digest: "d"}, Uuid: instance, Stage: inventory.MarkImporting}
	label(config, templates.Domain{Namespace: "ns", Object: "ubuntu"}, templates.Import{Name: "ours", Mark: mark.Mark}, mark)
	want := map[string]any{"svga.present": "TRUE", inventory.TemplateKey: mark.String()}
	if diff := cmp.Diff(want, object.OptionValueList(config.ExtraConfig).Map()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if config.Name != "ours" || config.InstanceUuid != instance || !strings.Contains(config.Annotation, "Release 1 of VSphereTemplate ns/ubuntu.") {
		t.Errorf("got %+v", config)
	}
}

// What vCenter says of a descriptor is told in its words, unless these could be somebody else's or hold an address.
func TestSaidOf(t *testing.T) {
	for text, want := range map[string]string{
		"Hardware family vmx-99 is not supported.": "Hardware family vmx-99 is not supported.",
		"":                         "OvfUnsupportedType",
		"see https://host/?ticket": "OvfUnsupportedType",
		"two\nlines":               "OvfUnsupportedType",
		strings.Repeat("x", 257):   "OvfUnsupportedType",
	} {
		if got := saidOf(types.LocalizedMethodFault{Fault: &types.OvfUnsupportedType{}, LocalizedMessage: text}); got != want {
			t.Errorf("%q is told as %q", text, got)
		}
	}
}

// host is a host that takes uploads, and a server that trusts nobody in particular.
type host struct {
	*httptest.Server
	server *session.Server
	status int
	got    []*http.Request
	taken  string
}

func newHost(t *testing.T) *host {
	h := &host{status: http.StatusOK}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		h.got, h.taken = append(h.got, r), string(text)
		w.Header().Set("Location", "https://elsewhere.example.org/")
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	var err error
	if h.server, err = session.NewServer(session.Config{Name: "lab", URL: "https://vc.example.org"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) send(ctx context.Context, device types.HttpNfcLeaseDeviceUrl, create bool) error {
	to, err := url.Parse(h.URL + "/nfc/secret-ticket/disk-0.vmdk")
	if err != nil {
		return err
	}
	item := nfc.NewFileItem(to, types.OvfFileItem{Path: "disk.vmdk", Create: create})
	return send(ctx, h.server, upload{FileItem: item, device: device, written: &atomic.Int64{}}, strings.NewReader("content"), 7)
}

// A host must have the certificate that vCenter says it has. Without that, nothing is sent to one that is not trusted as vCenter is.
func TestUploadTrust(t *testing.T) {
	h := newHost(t)
	certificate := func(raw []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	}
	own := h.Certificate()
	for name, c := range map[string]struct {
		device types.HttpNfcLeaseDeviceUrl
		sent   bool
	}{
		"nothing said":        {types.HttpNfcLeaseDeviceUrl{}, false},
		"its certificate":     {types.HttpNfcLeaseDeviceUrl{SslCertificate: certificate(own.Raw), SslThumbprint: "00:11"}, true},
		"another certificate": {types.HttpNfcLeaseDeviceUrl{SslCertificate: certificate(own.RawTBSCertificate), SslThumbprint: soap.ThumbprintSHA1(own)}, false},
		"no certificate":      {types.HttpNfcLeaseDeviceUrl{SslCertificate: "nothing"}, false},
		"its SHA-1":           {types.HttpNfcLeaseDeviceUrl{SslThumbprint: soap.ThumbprintSHA1(own)}, true},
		"its SHA-256":         {types.HttpNfcLeaseDeviceUrl{SslThumbprint: strings.ToLower(soap.ThumbprintSHA256(own))}, true},
		"another thumbprint":  {types.HttpNfcLeaseDeviceUrl{SslThumbprint: strings.Repeat("00:", 19) + "00"}, false},
	} {
		h.got = nil
		err := h.send(t.Context(), c.device, false)
		if (err == nil) != c.sent || (len(h.got) == 1) != c.sent || err != nil && !runtime.IsUnavailable(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret-ticket") {
			t.Errorf("%s: the ticket is in %v", name, err)
		}
	}
}

// A disk is posted and any other file put. What the host does not take is an error without its address, and no redirection is followed.
func TestUpload(t *testing.T) {
	h := newHost(t)
	device := types.HttpNfcLeaseDeviceUrl{SslThumbprint: soap.ThumbprintSHA256(h.Certificate())}
	for _, create := range []bool{false, true} {
		if err := h.send(t.Context(), device, create); err != nil || h.taken != "content" {
			t.Errorf("got %q, error %v", h.taken, err)
		}
	}
	if disk, file := h.got[0], h.got[1]; disk.Method != http.MethodPost || disk.Header.Get("Content-Type") != "application/x-vnd.vmware-streamVmdk" ||
		file.Method != http.MethodPut || file.Header.Get("Overwrite") != "t" {
		t.Errorf("sent %+v and %+v", disk, file)
	}
	for _, status := range []int{http.StatusNotFound, http.StatusFound, http.StatusInternalServerError} {
		h.status = status
		err := h.send(t.Context(), device, false)
		if !runtime.IsUnavailable(err) || runtime.Message(err) != `the host that vCenter lab names did not accept "disk.vmdk"` {
			t.Errorf("%d: got error %v", status, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := runtime.NewInvalidState(nil, "given up")
	cancel(cause)
	if err := h.send(ctx, device, false); !errors.Is(err, cause) {
		t.Errorf("got error %v", err)
	}
	h.Close()
	if err := h.send(t.Context(), device, false); !runtime.IsUnavailable(err) || strings.Contains(err.Error(), "secret-ticket") {
		t.Errorf("got error %v", err)
	}
}

// A machine of which vCenter shows no more than the name may be the template only if it is called like one.
func TestMayBeOurs(t *testing.T) {
	d := templates.Domain{Spec: &v1alpha1.VSphereTemplateSpec{Name: "Ubuntu"}}
	for name, want := range map[string]bool{"ubuntu": true, "Ubuntu-1": true, "sallyport-new-1": true, "debian": false, "": false} {
		if got := mayBeOurs(name, d); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
