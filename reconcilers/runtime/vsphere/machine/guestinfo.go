package machine

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// The keys for metadata and user data of the guest, each with its encoding.
const (
	metaDataKey    = "guestinfo.metadata"
	userDataKey    = "guestinfo.userdata"
	encodingSuffix = ".encoding"
)

// maxGuestInfo is the maximum length of a guestinfo value: vCenter does not store longer ones.
const maxGuestInfo = 64 << 10

// guestInfo returns the data for cloud-init's VMware datasource
// (https://docs.cloud-init.io/en/latest/reference/datasources/vmware.html).
func guestInfo(m runtime.Machine) ([]types.BaseOptionValue, error) {
	meta, err := metaData(m)
	if err != nil {
		return nil, err
	}
	values := []struct {
		at, key string
		data    []byte
	}{
		{metaDataKey, v1alpha1.CloudInitMetaDataKey, meta},
		{userDataKey, v1alpha1.CloudInitUserDataKey, []byte(m.CloudInit.UserData)},
	}
	var options []types.BaseOptionValue
	for _, v := range values {
		if len(v.data) == 0 {
			continue
		}
		text, err := packed(v.data)
		if err != nil {
			return nil, fmt.Errorf("compressing %s: %w", v.key, err)
		}
		if len(text) > maxGuestInfo {
			return nil, inventory.Invalid("cloudInit.secretRef", "%s takes %d bytes when compressed, but vCenter accepts at most %d", v.key, len(text), maxGuestInfo)
		}
		options = append(options,
			&types.OptionValue{Key: v.at, Value: text}, &types.OptionValue{Key: v.at + encodingSuffix, Value: "gzip+base64"})
	}
	return options, nil
}

// metaData returns the metadata of the machine as JSON. The UID makes cloud-init treat it as a new instance.
func metaData(m runtime.Machine) ([]byte, error) {
	var data map[string]any
	if err := yaml.Unmarshal([]byte(m.CloudInit.MetaData), &data); err != nil {
		// The error could reveal the content of the Secret.
		return nil, inventory.Invalid("cloudInit.secretRef", "%s of the Secret is not an object in YAML or JSON", v1alpha1.CloudInitMetaDataKey)
	}
	if data == nil {
		data = map[string]any{}
	}
	if _, said := data["instance-id"]; !said {
		data["instance-id"] = string(m.UID)
	}
	if _, said := data["local-hostname"]; !said {
		data["local-hostname"] = cmp.Or(cloneOf(m).Hostname, m.Name)
	}
	return json.Marshal(data)
}

// packed encodes data as gzip+base64.
func packed(data []byte) (string, error) {
	var text bytes.Buffer
	w := gzip.NewWriter(&text)
	if _, err := w.Write(data); err != nil {
		return "", err
	}
	err := w.Close()
	return base64.StdEncoding.EncodeToString(text.Bytes()), err
}
