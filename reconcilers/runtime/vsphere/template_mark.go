package vsphere

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// TemplateKey is the key in the extraConfig of a template for the VSphereTemplate that it was imported for.
const TemplateKey = "sallyport.template"

// Stages of an import in the mark.
const (
	markImporting = "importing"
	markImported  = "imported"
	markFinished  = "finished"
)

// templateMark is the record of an imported template. A copy inherits it, but has another instance UUID than the one
// in the mark.
type templateMark struct {
	owner  kubetypes.UID // UID of the VSphereTemplate
	domain string        // name of its failure domain
	templates.Mark
	uuid  string // instance UUID of the item itself
	stage string
}

// templateMarkText matches exactly the marks that Sallyport writes; any user can write others.
var templateMarkText = regexp.MustCompile(`^([A-Za-z0-9-]{1,64}) ([a-z0-9-]{1,63}) ([A-Za-z0-9._-]{1,63}) ([A-Za-z0-9:._-]{1,128}) ` +
	`([0-9]{1,14}) ([0-9a-fA-F-]{36}) (` + markImporting + `|` + markImported + `|` + markFinished + `)$`)

// parseTemplateMark returns false for any other text.
func parseTemplateMark(text string) (m templateMark, is bool) {
	fields := templateMarkText.FindStringSubmatch(text)
	if fields == nil {
		return m, false
	}
	made, err := strconv.ParseInt(fields[5], 10, 64)
	return templateMark{
		owner: kubetypes.UID(fields[1]), domain: fields[2],
		Mark: templates.Mark{Release: fields[3], Digest: fields[4], Made: time.UnixMilli(made).UTC()},
		uuid: fields[6], stage: fields[7],
	}, err == nil
}

func (m templateMark) String() string {
	return strings.Join([]string{string(m.owner), m.domain, m.Release, m.Digest, strconv.FormatInt(m.Made.UnixMilli(), 10), m.uuid, m.stage}, " ")
}

func (m templateMark) option() *types.OptionValue {
	return &types.OptionValue{Key: TemplateKey, Value: m.String()}
}

// templateMarkOf returns the mark of a machine or template, and false for an inherited one.
func templateMarkOf(vm *mo.VirtualMachine) (m templateMark, is bool) {
	if vm.Config == nil {
		return m, false
	}
	value, _ := object.OptionValueList(vm.Config.ExtraConfig).GetString(TemplateKey)
	m, is = parseTemplateMark(value)
	return m, is && strings.EqualFold(m.uuid, vm.Config.InstanceUuid)
}

// earlier returns the owner of an item that was imported for another VSphereTemplate of the same namespace and name,
// or "". The mark does not contain the name, but the annotation does.
func (m templateMark) earlier(d templates.Domain, vm *mo.VirtualMachine) kubetypes.UID {
	if m.owner != d.Owner && vm.Config != nil && strings.HasPrefix(vm.Config.Annotation, annotationOf(d, m.Release)) {
		return m.owner
	}
	return ""
}

// annotationOf returns the first part of a release's annotation.
func annotationOf(d templates.Domain, release string) string {
	return fmt.Sprintf("Release %s of VSphereTemplate %s/%s. ", release, d.Namespace, d.Object)
}

// of reports whether the mark is of that failure domain, or of one that the spec no longer has: then it belongs to
// the failure domain with its folder, as after a change of its name. An item moved from another failure domain's
// folder still belongs to that one.
func (m templateMark) of(d templates.Domain) bool {
	return (m.owner == d.Owner || slices.Contains(d.Former, string(m.owner))) && (m.domain == d.Domain.Name || d.Spec.Place(m.domain) == nil)
}
