package inventory

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

// Creation is keyed by the UID of an object, and a restored object has another one: it would get a second machine. So
// before one is created, the datacenter is searched for machines that are marked for the same namespace and name.

// Keyed returns the property of one extraConfig entry, of which a machine has many.
func Keyed(key string) string { return fmt.Sprintf("config.extraConfig[%q]", key) }

// OurKeys is the prefix of our keys in extraConfig.
const OurKeys = "sallyport."

// TemplateKey is the key in the extraConfig of a template for the VSphereTemplate that it was imported for.
const TemplateKey = "sallyport.template"

// Stages of an import in the mark.
const (
	MarkImporting = "importing"
	MarkImported  = "imported"
	MarkFinished  = "finished"
)

// TemplateMark is the record of an imported template. A copy inherits it, but has another instance UUID than the one
// in the mark.
type TemplateMark struct {
	Owner  kubetypes.UID // UID of the VSphereTemplate
	Domain string        // name of its failure domain
	templates.Mark
	Uuid  string // instance UUID of the item itself
	Stage string
}

// templateMarkText matches exactly the marks that Sallyport writes; any user can write others.
var templateMarkText = regexp.MustCompile(`^([A-Za-z0-9-]{1,64}) ([a-z0-9-]{1,63}) ([A-Za-z0-9._-]{1,63}) ([A-Za-z0-9:._-]{1,128}) ` +
	`([0-9]{1,14}) ([0-9a-fA-F-]{36}) (` + MarkImporting + `|` + MarkImported + `|` + MarkFinished + `)$`)

// ParseTemplateMark returns false for any other text.
func ParseTemplateMark(text string) (m TemplateMark, is bool) {
	fields := templateMarkText.FindStringSubmatch(text)
	if fields == nil {
		return m, false
	}
	made, err := strconv.ParseInt(fields[5], 10, 64)
	return TemplateMark{
		Owner: kubetypes.UID(fields[1]), Domain: fields[2],
		Mark: templates.Mark{Release: fields[3], Digest: fields[4], Made: time.UnixMilli(made).UTC()},
		Uuid: fields[6], Stage: fields[7],
	}, err == nil
}

// String returns the mark as it is written.
func (m TemplateMark) String() string {
	return strings.Join([]string{string(m.Owner), m.Domain, m.Release, m.Digest, strconv.FormatInt(m.Made.UnixMilli(), 10), m.Uuid, m.Stage}, " ")
}

// Option returns the mark as an entry of extraConfig.
func (m TemplateMark) Option() *types.OptionValue {
	return &types.OptionValue{Key: TemplateKey, Value: m.String()}
}

// TemplateMarkOf returns the mark of a machine or template, and false for an inherited one.
func TemplateMarkOf(vm *mo.VirtualMachine) (m TemplateMark, is bool) {
	if vm.Config == nil {
		return m, false
	}
	value, _ := object.OptionValueList(vm.Config.ExtraConfig).GetString(TemplateKey)
	m, is = ParseTemplateMark(value)
	return m, is && strings.EqualFold(m.Uuid, vm.Config.InstanceUuid)
}

// Earlier returns the owner of an item that was imported for another VSphereTemplate of the same namespace and name,
// or "". The mark does not contain the name, but the annotation does.
func (m TemplateMark) Earlier(d templates.Domain, vm *mo.VirtualMachine) kubetypes.UID {
	if m.Owner != d.Owner && vm.Config != nil && strings.HasPrefix(vm.Config.Annotation, AnnotationOf(d, m.Release)) {
		return m.Owner
	}
	return ""
}

// AnnotationOf returns the first part of a release's annotation.
func AnnotationOf(d templates.Domain, release string) string {
	return fmt.Sprintf("Release %s of VSphereTemplate %s/%s. ", release, d.Namespace, d.Object)
}

// Of reports whether the mark is of that failure domain, or of one that the spec no longer has: then it belongs to
// the failure domain with its folder, as after a change of its name. An item moved from another failure domain's
// folder still belongs to that one.
func (m TemplateMark) Of(d templates.Domain) bool {
	return (m.Owner == d.Owner || slices.Contains(d.Former, string(m.Owner))) && (m.Domain == d.Domain.Name || d.Spec.Place(m.Domain) == nil)
}
